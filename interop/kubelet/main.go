// Command kubelet answers what an API server asks a node for on behalf of people: logs, exec, attach and port-forward,
// with the library that container runtimes answer it with. Its pods are processes of this machine: a command runs as it
// is, a port is this machine's, and a log is a file.
//
//	kubelet --certificate FILE --key FILE --logs FOLDER
//
// It prints the port it listens on.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = 5 * time.Minute
	creation = 30 * time.Second
)

type node struct{ logs string }

func main() {
	certificate := flag.String("certificate", "", "of this server, in PEM")
	key := flag.String("key", "", "its key")
	logs := flag.String("logs", "", "where logs are: <namespace>-<pod>.log, followed while they grow")
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	n := node{logs: *logs}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", n.exec)
	mux.HandleFunc("/attach/", n.attach)
	mux.HandleFunc("/portForward/", n.portForward)
	mux.HandleFunc("/containerLogs/", n.containerLogs)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	fail(http.ServeTLS(listener, mux, *certificate, *key))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// streams is what is wanted of them; nil, and the answer given, for what cannot be.
func streams(w http.ResponseWriter, r *http.Request) *remotecommand.Options {
	wanted, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	return wanted
}

func (n node) exec(w http.ResponseWriter, r *http.Request) {
	if wanted := streams(w, r); wanted != nil {
		remotecommand.ServeExec(w, r, n, "", "", "", r.URL.Query()["command"], wanted, idle, creation,
			remotecommand.SupportedStreamingProtocols)
	}
}

// attach answers with what it is told.
func (n node) attach(w http.ResponseWriter, r *http.Request) {
	if wanted := streams(w, r); wanted != nil {
		remotecommand.ServeAttach(w, r, n, "", "", "", wanted, idle, creation,
			remotecommand.SupportedStreamingProtocols)
	}
}

func (n node) portForward(w http.ResponseWriter, r *http.Request) {
	ports, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, n, "", "", ports, idle, creation, portforward.SupportedProtocols)
}

func (node) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, err io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Stdin, process.Stdout = in, out
	if err != nil {
		process.Stderr = err
	}
	failed := process.Run()
	if exit, ok := failed.(*exec.ExitError); ok {
		return &utilexec.ExitErrorWrapper{ExitError: exit}
	}
	return failed
}

func (node) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	_, err := io.Copy(out, in)
	return err
}

func (node) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	there, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer there.Close()
	go func() {
		_, _ = io.Copy(there, stream)
		_ = there.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, there)
	return err
}

// containerLogs writes a pod's log, and what is added to it for as long as it is followed.
func (n node) containerLogs(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/") // "", containerLogs, namespace, pod, container
	if len(parts) != 5 {
		http.NotFound(w, r)
		return
	}
	file, err := os.Open(filepath.Join(n.logs, filepath.Base(parts[2]+"-"+parts[3]+".log")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer file.Close()
	for r.Context().Err() == nil {
		written, err := io.Copy(w, file)
		if err != nil || r.URL.Query().Get("follow") != "true" {
			return
		}
		if written > 0 {
			w.(http.Flusher).Flush()
		}
		time.Sleep(50 * time.Millisecond)
	}
}
