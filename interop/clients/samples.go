package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// Sample is one object in both of its encodings.
type Sample struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Protobuf   []byte          `json:"protobuf"`
	JSON       json.RawMessage `json:"json"`
}

// printSamples writes --count random objects of every kind there is, one per line. No server is asked.
func printSamples(ctx context.Context, s *Setting) (Report, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, schemaFuncs), rand.NewSource(int64(s.Count)), serializer.NewCodecFactory(kinds))
	binary := protobuf.NewSerializer(kinds, kinds)
	for _, kind := range known(kinds) {
		for range s.Count {
			if err := printSample(kinds, kind, filler, binary); err != nil {
				return nil, fmt.Errorf("%s: %w", kind, err)
			}
		}
	}
	return nil, nil
}

func known(kinds *runtime.Scheme) []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for kind := range kinds.AllKnownTypes() {
		object, err := kinds.New(kind)
		if _, isObject := object.(metav1.Object); err == nil && isObject && kind.Version != runtime.APIVersionInternal {
			all = append(all, kind)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].String() < all[j].String() })
	return all
}

func printSample(kinds *runtime.Scheme, kind schema.GroupVersionKind, filler *randfill.Filler, binary runtime.Encoder) error {
	object, err := kinds.New(kind)
	if err != nil {
		return err
	}
	filler.Fill(object)
	object.GetObjectKind().SetGroupVersionKind(kind)
	encoded, err := runtime.Encode(binary, object)
	if err != nil {
		return err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	write(Sample{APIVersion: apiVersion, Kind: name, Protobuf: encoded, JSON: text})
	return nil
}

// schemaFuncs keep schemas small, and well-formed where they hold JSON.
func schemaFuncs(serializer.CodecFactory) []any {
	return []any{
		func(raw *apiextensionsv1.JSON, c randfill.Continue) {
			text, _ := json.Marshal(map[string]any{c.String(5): []any{c.Int31(), c.String(5), nil, c.Bool()}})
			raw.Raw = text
		},
		func(props *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
			if c.Intn(3) == 0 {
				c.FillNoCustom(props)
				return
			}
			props.Type, props.Description = c.String(5), c.String(5)
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrBool, c randfill.Continue) {
			if either.Allows = c.Bool(); either.Allows {
				either.Schema = &apiextensionsv1.JSONSchemaProps{Type: c.String(4)}
			}
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrArray, c randfill.Continue) {
			if c.Bool() {
				either.Schema = &apiextensionsv1.JSONSchemaProps{Type: c.String(4)}
			} else {
				either.JSONSchemas = []apiextensionsv1.JSONSchemaProps{{Type: c.String(4)}, {Title: c.String(4)}}
			}
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			if c.Bool() {
				either.Schema = &apiextensionsv1.JSONSchemaProps{Type: c.String(4)}
			} else {
				either.Property = []string{c.String(4), c.String(4)}
			}
		},
	}
}
