package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/rancher/remotedialer"
)

// control is how a test tells an end what to do. It is HTTP on loopback:
//
//	GET  /sessions                                       {"sessions": [key, ...]}
//	POST /forward   {"key", "network", "address"}        {"address": where to connect to get there}
//	GET  /failures                                       {"failures": [why forwarded connections failed, ...]}
type control struct {
	dialerOf func(key string) remotedialer.Dialer
	sessions func() []string
	lock     sync.Mutex
	failures []string
}

func newControl(dialerOf func(string) remotedialer.Dialer, sessions func() []string) (string, error) {
	c := &control{dialerOf: dialerOf, sessions: sessions, failures: []string{}}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /sessions", func(answer http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(answer).Encode(map[string]any{"sessions": c.sessions()})
	})
	routes.HandleFunc("GET /failures", func(answer http.ResponseWriter, _ *http.Request) {
		c.lock.Lock()
		defer c.lock.Unlock()
		_ = json.NewEncoder(answer).Encode(map[string]any{"failures": c.failures})
	})
	routes.HandleFunc("POST /forward", c.forward)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { fail(http.Serve(listener, routes)) }()
	return "http://" + listener.Addr().String(), nil
}

type target struct{ Key, Network, Address string }

// forward opens a port; whoever connects to it is connected to the target, through the tunnel.
func (c *control) forward(answer http.ResponseWriter, request *http.Request) {
	var to target
	if err := json.NewDecoder(request.Body).Decode(&to); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				fail(err)
			}
			go c.join(near, to)
		}
	}()
	_ = json.NewEncoder(answer).Encode(map[string]string{"address": listener.Addr().String()})
}

// join passes bytes on until either side ends: the protocol has no half-closed connections.
func (c *control) join(near net.Conn, to target) {
	defer near.Close()
	far, err := c.dialerOf(to.Key)(context.Background(), to.Network, to.Address)
	if err != nil {
		c.failed(err)
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near)
		far.Close()
	}()
	if _, err := io.Copy(near, far); err != nil {
		c.failed(err)
	}
}

func (c *control) failed(err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.failures = append(c.failures, err.Error())
}
