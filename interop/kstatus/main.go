// Command kstatus says what Flux makes of Kubernetes objects: it computes their status with the kstatus library that
// Flux's controllers use for health checks and `wait`.
//
// It reads objects as JSON values, one after the other, and prints the status of each as a line of JSON.
//
//	kstatus < objects
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Judged is the status of one object: InProgress, Failed, Current, Terminating, NotFound or Unknown.
type Judged struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = judge(raw, encoder)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kstatus:", err)
			os.Exit(1)
		}
	}
}

func judge(raw []byte, encoder *json.Encoder) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return err
	}
	result, err := status.Compute(object)
	if err != nil {
		return err
	}
	return encoder.Encode(Judged{result.Status.String(), result.Message})
}
