package main

import (
	"context"
	"net"
	"net/http"

	"github.com/rancher/remotedialer"
)

// serve takes sessions over TLS. The key of a session is what its client says in X-Tunnel-ID, as in upstream's sample.
func serve(ctx context.Context, arguments []string) error {
	var allow list
	options := flags("server")
	address := options.String("listen", "127.0.0.1:0", "where to take sessions")
	certificate := options.String("certificate", "", "file with the server's certificate")
	key := options.String("key", "", "file with its key")
	options.Var(&allow, "allow", "what clients may dial here; may be repeated")
	_ = options.Parse(arguments)

	tunnels := remotedialer.New(keyFromHeader, remotedialer.DefaultErrorWriter)
	tunnels.ClientConnectAuthorizer = allow.allows
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	front := &http.Server{Handler: tunnels}
	go func() { fail(front.ServeTLS(listener, *certificate, *key)) }()

	control, err := newControl(
		func(key string) remotedialer.Dialer { return tunnels.Dialer(key) },
		func() []string { return tunnels.ListClients() },
	)
	if err != nil {
		return err
	}
	say(map[string]string{"url": "wss://" + listener.Addr().String() + "/v3/connect", "control": control})
	<-ctx.Done()
	return nil
}

func keyFromHeader(request *http.Request) (string, bool, error) {
	id := request.Header.Get("X-Tunnel-ID")
	return id, id != "", nil
}
