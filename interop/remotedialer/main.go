// Command remotedialer is one end of a reverse tunnel on upstream's library: what ours has to get along with.
//
//	remotedialer server --certificate FILE --key FILE [--listen ADDRESS] [--allow NETWORK/ADDRESS]...
//	remotedialer client --url URL --ca FILE --id KEY [--header NAME=VALUE]... [--allow NETWORK/ADDRESS]... [--retry DURATION]
//
// Either prints one line of JSON once it listens, and is then told what to do over HTTP on loopback (control.go).
// An end allows the other to dial what was given as --allow and nothing else; "tcp/" allows all of tcp.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
)

var commands = map[string]func(context.Context, []string) error{
	"server": serve,
	"client": connect,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fail(fmt.Errorf("commands: client, server"))
	}
	logrus.SetOutput(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func say(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		fail(err)
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// allows is a connect authorizer of what --allow names: whole targets, or all of a network ("tcp/").
func (l *list) allows(network, address string) bool {
	for _, allowed := range *l {
		if allowed == network+"/"+address || allowed == network+"/" {
			return true
		}
	}
	return false
}

func flags(name string) *flag.FlagSet {
	return flag.NewFlagSet("remotedialer "+name, flag.ExitOnError)
}
