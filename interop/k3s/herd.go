// What pods of the tests run, from an image with nothing but this program in it. By itself it only waits; with an address it
// also answers there over HTTP: where it runs, and for /say/WORD with that word on standard output. `herd where` says at
// once where it runs, `herd repeat` what it is told, and both end.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch command {
	case "where":
		fmt.Println(os.Getenv("NODE_NAME"))
	case "repeat":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		graze(command)
	}
}

func graze(address string) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	if address != "" {
		http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(answer, os.Getenv("NODE_NAME"))
		})
		http.HandleFunc("/say/{word}", func(_ http.ResponseWriter, request *http.Request) {
			fmt.Println(request.PathValue("word"))
		})
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(address, nil))
			os.Exit(1)
		}()
	}
	fmt.Println("the herd grazes")
	<-stop
}
