// Command linearizability judges histories of requests to a Kubernetes API server with Porcupine: is there an order of
// all operations on an object, each taking effect between its call and its answer, that explains every answer?
//
// It reads histories as JSON objects, one after the other, and prints one verdict for each, as a line of JSON.
//
//	linearizability < histories > verdicts
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Longest is how long Porcupine may search. What it has not decided by then is no proof.
const Longest = 5 * time.Minute

// History is what some clients did with some objects.
type History struct {
	Operations []Operation `json:"operations"`
}

// Operation is one request and its answer. Times are nanoseconds of one clock.
type Operation struct {
	Client   int    `json:"client"`
	Verb     string `json:"verb"`     // create, get, update, status, delete, list
	Key      string `json:"key"`      // of the object; none for a list
	Token    string `json:"token"`    // what it writes: into the object, or into its status
	Expected int64  `json:"expected"` // the resourceVersion that an update requires
	Call     int64  `json:"call"`
	Return   int64  `json:"return"`
	Answer   string `json:"answer"` // ok, absent, exists, conflict; unknown if the connection was lost

	Object   *Object           `json:"object"`   // of an answer that carries one
	Items    map[string]Object `json:"items"`    // of a list
	Revision int64             `json:"revision"` // of a list
}

// Object is an object as an answer shows it.
type Object struct {
	Revision int64  `json:"revision"`
	Token    string `json:"token"`
	Status   string `json:"status"`
}

// Verdict is what is wrong with a history; nothing if it is linearizable.
type Verdict struct {
	Problems []string `json:"problems"`
	Keys     []string `json:"keys"` // of objects whose history is not linearizable
}

func main() {
	decoder, encoder := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	decoder.DisallowUnknownFields()
	for {
		var history History
		err := decoder.Decode(&history)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = encoder.Encode(judge(history))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "linearizability:", err)
			os.Exit(1)
		}
	}
}

func judge(history History) Verdict {
	verdict := Verdict{Problems: append(reused(history), skipped(history)...), Keys: []string{}}
	byKey := partition(history)
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		switch porcupine.CheckOperationsTimeout(model, byKey[key], Longest) {
		case porcupine.Ok:
			continue
		case porcupine.Illegal:
			verdict.Problems = append(verdict.Problems, "object "+key+": its history is not linearizable")
		default:
			verdict.Problems = append(verdict.Problems, "object "+key+": undecided after "+Longest.String())
		}
		verdict.Keys = append(verdict.Keys, key)
	}
	if verdict.Problems == nil {
		verdict.Problems = []string{}
	}
	return verdict
}

// partition parts a history by object. A list is a read of each of them.
func partition(history History) map[string][]porcupine.Operation {
	keys := map[string]bool{}
	for _, operation := range history.Operations {
		if operation.Verb != "list" {
			keys[operation.Key] = true
		}
		for key := range operation.Items {
			keys[key] = true
		}
	}
	found := map[string][]porcupine.Operation{}
	for _, operation := range history.Operations {
		if operation.Answer == "unknown" {
			operation.Return = math.MaxInt64 // it may take effect at any time, or never
		}
		if operation.Verb != "list" {
			found[operation.Key] = append(found[operation.Key], timed(operation))
			continue
		}
		for key := range keys {
			read := operation
			read.Verb, read.Key, read.Answer, read.Object, read.Items = "get", key, "absent", nil, nil
			if item, listed := operation.Items[key]; listed {
				read.Answer, read.Object = "ok", &item
			}
			found[key] = append(found[key], timed(read))
		}
	}
	return found
}

func timed(operation Operation) porcupine.Operation {
	return porcupine.Operation{
		ClientId: operation.Client, Input: operation, Call: operation.Call, Output: operation, Return: operation.Return,
	}
}

// State is an object between two operations.
type State struct {
	Exists   bool
	Revision int64 // 0: of a write whose answer was lost, and that nobody has seen yet
	Floor    int64 // every later revision is higher
	Token    string
	Status   string
}

var model = porcupine.Model{
	Init: func() any { return State{} },
	Step: func(before, input, _ any) (bool, any) {
		possible, after := step(before.(State), input.(Operation))
		return possible, after
	},
}

// step tells whether an object in this state can give this answer, and in which state that leaves it.
func step(state State, operation Operation) (bool, State) {
	switch operation.Answer {
	case "absent":
		return !state.Exists && operation.Verb != "create", state
	case "exists":
		return state.Exists && operation.Verb == "create", state
	case "conflict":
		return state.Exists && operation.Verb == "update" && state.Revision != operation.Expected, state
	case "unknown":
		return true, lost(state, operation)
	case "ok":
		return answered(state, operation)
	}
	panic("unknown answer " + operation.Answer)
}

// answered is for an operation that succeeded and showed what it led to.
func answered(state State, operation Operation) (bool, State) {
	if operation.Verb == "delete" {
		return state.Exists, State{Floor: state.Floor}
	}
	if !permitted(state, operation) {
		return false, state
	}
	shown := operation.Object
	expected := written(state, operation)
	if shown == nil || shown.Token != expected.Token || shown.Status != expected.Status {
		return false, state
	}
	if operation.Verb == "get" && state.Revision != 0 {
		return shown.Revision == state.Revision, state
	}
	expected.Revision, expected.Floor = shown.Revision, shown.Revision
	return shown.Revision > state.Floor, expected
}

// lost is for a write whose answer was lost. If it cannot be done in this state, it has no effect.
func lost(state State, operation Operation) State {
	if !permitted(state, operation) {
		return state
	}
	if operation.Verb == "delete" {
		return State{Floor: state.Floor}
	}
	after := written(state, operation)
	after.Revision = 0
	return after
}

func permitted(state State, operation Operation) bool {
	switch operation.Verb {
	case "create":
		return !state.Exists
	case "update": // whoever requires a revision has seen it, so that it is not 0 here
		return state.Exists && state.Revision == operation.Expected
	default:
		return state.Exists
	}
}

func written(state State, operation Operation) State {
	switch operation.Verb {
	case "create":
		state.Exists, state.Token, state.Status = true, operation.Token, ""
	case "update":
		state.Token = operation.Token
	case "status":
		state.Status = operation.Token
	}
	return state
}

func isWrite(operation Operation) bool {
	return operation.Answer == "ok" && operation.Object != nil && operation.Verb != "get"
}

// reused finds revisions that were given to two writes, of whichever objects.
func reused(history History) []string {
	var problems []string
	seen := map[int64]Operation{}
	for _, operation := range history.Operations {
		if !isWrite(operation) {
			continue
		}
		revision := operation.Object.Revision
		if other, known := seen[revision]; known {
			problems = append(problems, fmt.Sprintf(
				"revision %d was given to %s of %s and to %s of %s", revision, other.Verb, other.Key, operation.Verb, operation.Key))
		}
		seen[revision] = operation
	}
	return problems
}

// skipped finds lists that are no picture of one moment: a list of revision R shows each object as the last write up to R
// left it.
func skipped(history History) []string {
	var problems []string
	for _, list := range history.Operations {
		if list.Verb != "list" || list.Answer != "ok" {
			continue
		}
		for key, item := range list.Items {
			if item.Revision > list.Revision {
				problems = append(problems, fmt.Sprintf("list of revision %d shows %s of revision %d", list.Revision, key, item.Revision))
			}
		}
		for _, write := range history.Operations {
			item, listed := list.Items[write.Key]
			if isWrite(write) && listed && item.Revision < write.Object.Revision && write.Object.Revision <= list.Revision {
				problems = append(problems, fmt.Sprintf("list of revision %d shows %s of revision %d, which was written at %d",
					list.Revision, write.Key, item.Revision, write.Object.Revision))
			}
		}
	}
	return problems
}
