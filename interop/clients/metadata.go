package main

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// useMetadata asks for views of objects: their metadata alone, and tables as kubectl prints them.
func useMetadata(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	if err := s.put(ctx, "viewed", nil); err != nil {
		return nil, err
	}
	report := Report{}
	for _, resource := range []string{"configmaps", "mounts"} {
		kind := corev1.SchemeGroupVersion.WithResource(resource)
		if resource == "mounts" {
			kind = s.mounts()
		}
		client := s.metadata().Resource(kind).Namespace(s.Namespace)
		one, err := client.Get(ctx, "viewed", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		patched, err := client.Patch(ctx, "viewed", types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"1"}}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "l=1"})
		if err != nil {
			return nil, err
		}
		table, err := s.table(ctx, kind.GroupVersion().String(), resource)
		if err != nil {
			return nil, err
		}
		if err := client.Delete(ctx, "viewed", metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		report[resource] = Report{
			"kind": one.Kind, "name": one.Name, "patched": patched.Labels["l"], "listed": len(list.Items), "list": list.Kind, "table": table,
		}
	}
	return report, nil
}

func (s *Setting) table(ctx context.Context, version, resource string) (Report, error) {
	root := "/apis/" + version
	if version == "v1" {
		root = "/api/v1"
	}
	client, err := rest.HTTPClientFor(s.config())
	if err != nil {
		return nil, err
	}
	generic, err := rest.RESTClientForConfigAndClient(s.rawConfig(), client)
	if err != nil {
		return nil, err
	}
	text, err := generic.Get().AbsPath(root, "namespaces", s.Namespace, resource).
		Param("labelSelector", "l=1").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(text, table); err != nil {
		return nil, err
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		columns = append(columns, column.Name)
	}
	return Report{"kind": table.Kind, "columns": columns, "rows": len(table.Rows), "name": table.Rows[0].Cells[0]}, nil
}
