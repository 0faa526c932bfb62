package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// compareWires writes the same object once in protobuf and once in JSON, and compares what is stored. The report holds
// per kind "same" or the first place where they differ.
func compareWires(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	texts := s.config()
	texts.ContentType = jsonType
	asJSON, err := client.New(texts, client.Options{Scheme: kinds})
	if err != nil {
		return nil, err
	}
	asProtobuf, err := client.New(binary(s.config()), client.Options{Scheme: kinds})
	if err != nil {
		return nil, err
	}
	report := Report{}
	for _, sample := range fullSamples() {
		kind, err := asJSON.GroupVersionKindFor(sample)
		if err != nil {
			return nil, err
		}
		first, err := s.written(ctx, asJSON, asJSON, sample, "sample-j-"+s.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%s as JSON: %w", kind, err)
		}
		second, err := s.written(ctx, asProtobuf, asJSON, sample, "sample-p-"+s.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%s as protobuf: %w", kind, err)
		}
		report[kind.GroupVersion().String()+" "+kind.Kind] = difference("", first, second)
	}
	return report, nil
}

// written creates, updates and, where there is one, writes the status of a copy of the sample; the answer is the stored
// object without what is its own.
func (s *Setting) written(ctx context.Context, writer, reader client.Client, sample client.Object, name string) (any, error) {
	object := sample.DeepCopyObject().(client.Object)
	kind, err := writer.GroupVersionKindFor(object)
	if err != nil {
		return nil, err
	}
	object.SetName(name)
	switch object := object.(type) { // where one part of an object must fit another
	case *apiextensionsv1.CustomResourceDefinition:
		object.Spec.Group = name + ".example.com"
		object.Name = object.Spec.Names.Plural + "." + object.Spec.Group
	case *corev1.Event:
		object.InvolvedObject.Namespace = s.Namespace
	case *eventsv1.Event:
		object.Regarding.Namespace = s.Namespace
	}
	namespaced, err := writer.IsObjectNamespaced(object)
	if err != nil {
		return nil, err
	}
	if namespaced {
		object.SetNamespace(s.Namespace)
	}
	if err := writer.Create(ctx, object); err != nil {
		return nil, err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // controllers of the server may write it meanwhile
		if err := writer.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		object.SetAnnotations(map[string]string{"updated": "yes"})
		return writer.Update(ctx, object)
	})
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(kind)
	if err := reader.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
		return nil, err
	}
	if err := writer.Delete(ctx, object); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return anonymous(stored)
}

// anonymous replaces an object's name and uid wherever they occur, and drops times.
func anonymous(object *unstructured.Unstructured) (any, error) {
	uid, name := string(object.GetUID()), object.GetName()
	unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(object.Object, "status") // its conditions come when the server gets to it
	var kept []any
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			entry.Time = nil
			text, err := json.Marshal(entry)
			if err != nil {
				return nil, err
			}
			kept = append(kept, string(text))
		}
	}
	_ = unstructured.SetNestedSlice(object.Object, kept, "metadata", "managedFields")
	text, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	plain := strings.NewReplacer(uid, "UID", name, "NAME", "sample-j-", "sample-", "sample-p-", "sample-").Replace(string(text))
	var value any
	return value, json.Unmarshal([]byte(plain), &value)
}

func difference(path string, first, second any) string {
	if reflect.DeepEqual(first, second) {
		return "same"
	}
	a, mapped := first.(map[string]any)
	b, alsoMapped := second.(map[string]any)
	if mapped && alsoMapped {
		for key := range a {
			if found := difference(path+"."+key, a[key], b[key]); found != "same" {
				return found
			}
		}
		for key := range b {
			if _, there := a[key]; !there {
				return difference(path+"."+key, nil, b[key])
			}
		}
	}
	return fmt.Sprintf("%s: %v in JSON, %v in protobuf", path, first, second)
}
