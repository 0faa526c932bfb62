// What pods of the tests run, from an image with nothing but this program in it: by itself it only waits, with an address
// it also says there over HTTP where it runs, and `herd where` says it at once and ends.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "where" {
		fmt.Println(os.Getenv("NODE_NAME"))
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	if len(os.Args) > 1 {
		http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(answer, os.Getenv("NODE_NAME"))
		})
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[1], nil))
			os.Exit(1)
		}()
	}
	fmt.Println("the herd grazes")
	<-stop
}
