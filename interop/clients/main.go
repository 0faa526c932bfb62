// Command clients does what Go programs do with a Kubernetes API server, with the libraries they do it with, and says
// what it saw as one JSON object. What is right is asserted by tests/interop/test_go_clients.py, on the real server
// first: nothing here knows which server it talks to.
//
//	clients --kubeconfig FILE [--group GROUP] [--count N] COMMAND
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Report is what a command saw.
type Report map[string]any

var commands = map[string]func(context.Context, *Setting) (Report, error){
	"discovery": discover,
	"dynamic":   useDynamic,
	"election":  elect,
	"events":    recordEvents,
	"follow":    follow,
	"informers": inform,
	"manager":   manage,
	"metadata":  useMetadata,
	"samples":   printSamples,
	"typed":     useTyped,
	"wire":      compareWires,
}

func main() {
	setting := &Setting{}
	flags := flag.NewFlagSet("clients", flag.ExitOnError) // controller-runtime has put its own into the common set
	flags.StringVar(&setting.Kubeconfig, "kubeconfig", "", "how to reach the server")
	flags.StringVar(&setting.Group, "group", "clients.example.com", "the API group of the custom kind, made if it is missing")
	flags.StringVar(&setting.Namespace, "namespace", "", "where to work; a new one if empty")
	flags.IntVar(&setting.Count, "count", 10, "how many, where a command makes many")
	seconds := flags.Int("seconds", 120, "give up after this long")
	klog.InitFlags(flags)
	_ = flags.Parse(os.Args[1:])
	ctrl.SetLogger(klog.Background())

	command, known := commands[flags.Arg(0)]
	if !known {
		fail(fmt.Errorf("commands: %s", strings.Join(names(), ", ")))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*seconds)*time.Second)
	defer cancel()
	report, err := command(ctx, setting)
	if err != nil {
		fail(fmt.Errorf("%s: %w", flags.Arg(0), err))
	}
	if report != nil {
		write(report)
	}
}

func names() []string {
	var all []string
	for name := range commands {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

func write(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
