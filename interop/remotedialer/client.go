package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
)

// connect keeps one session with a server, and tries again whenever it has ended.
func connect(ctx context.Context, arguments []string) error {
	var allow, given list
	options := flags("client")
	url := options.String("url", "", "of the server")
	authority := options.String("ca", "", "file with the authorities that may have signed the server's certificate")
	id := options.String("id", "", "the key of the session")
	retry := options.Duration("retry", 5*time.Second, "how long to wait before the next attempt")
	options.Var(&given, "header", "NAME=VALUE, sent with the handshake; may be repeated")
	options.Var(&allow, "allow", "what the server may dial here; may be repeated")
	_ = options.Parse(arguments)

	dialer, err := dialerFor(*authority)
	if err != nil {
		return err
	}
	headers := http.Header{"X-Tunnel-ID": {*id}}
	for _, header := range given {
		name, value, _ := strings.Cut(header, "=")
		headers.Set(name, value)
	}
	current := &current{}
	control, err := newControl(func(string) remotedialer.Dialer { return current.dial }, current.list)
	if err != nil {
		return err
	}
	say(map[string]string{"control": control})
	for ctx.Err() == nil {
		err := remotedialer.ConnectToProxy(ctx, *url, headers, allow.allows, dialer, current.keep)
		current.forget()
		logrus.Warnf("session ended: %v", err)
		select {
		case <-ctx.Done():
		case <-time.After(*retry):
		}
	}
	return nil
}

func dialerFor(authority string) (*websocket.Dialer, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificates in %s", authority)
	}
	return &websocket.Dialer{
		Proxy:            http.ProxyFromEnvironment,
		HandshakeTimeout: remotedialer.HandshakeTimeOut,
		TLSClientConfig:  &tls.Config{RootCAs: pool},
	}, nil
}

// current is the session there is, if there is one.
type current struct {
	lock    sync.Mutex
	session *remotedialer.Session
}

func (c *current) keep(_ context.Context, session *remotedialer.Session) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.session = session
	return nil
}

func (c *current) forget() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.session = nil
}

func (c *current) list() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.session == nil {
		return []string{}
	}
	return []string{"server"}
}

func (c *current) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.lock.Lock()
	session := c.session
	c.lock.Unlock()
	if session == nil {
		return nil, errors.New("there is no session")
	}
	return session.Dial(ctx, network, address)
}
