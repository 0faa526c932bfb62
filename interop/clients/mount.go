package main

import (
	"context"
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Mount is the custom kind the commands work on.
type Mount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MountSpec   `json:"spec,omitempty"`
	Status            MountStatus `json:"status,omitempty"`
}

type MountSpec struct {
	Coat   string `json:"coat,omitempty"`
	Height int64  `json:"height,omitempty"`
}

type MountStatus struct {
	Phase              string             `json:"phase,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type MountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Mount `json:"items"`
}

func (m *Mount) DeepCopyObject() runtime.Object { return recoded(m, &Mount{}) }

func (l *MountList) DeepCopyObject() runtime.Object { return recoded(l, &MountList{}) }

func recoded[T runtime.Object](from, to T) T {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

func (s *Setting) mountVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: s.Group, Version: "v1"}
}

func (s *Setting) mounts() schema.GroupVersionResource {
	return s.mountVersion().WithResource("mounts")
}

func (s *Setting) mount(name, coat string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": s.mountVersion().String(),
		"kind":       "Mount",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"coat": coat},
	}}
}

// defineMounts makes the custom kind and waits until it is served.
func (s *Setting) defineMounts(ctx context.Context) error {
	definitions := apiextensions.NewForConfigOrDie(binary(s.config())).ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(ctx, mountDefinition(s.Group), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err = until(ctx, "the definition of mounts", func(ctx context.Context) (bool, error) {
		found, err := definitions.Get(ctx, "mounts."+s.Group, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return until(ctx, "mounts to be served", func(ctx context.Context) (bool, error) {
		_, err := s.dynamic().Resource(s.mounts()).List(ctx, metav1.ListOptions{})
		return err == nil, ignoreNotFound(err)
	})
}

func mountDefinition(group string) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: ptr.To(0.0)}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"coat":   {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"bay"`)}, {Raw: []byte(`"grey"`)}}},
		"height": number,
		"colour": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"plain"`)}},
	}}
	status := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"phase":              text,
		"observedGeneration": number,
		"conditions": {
			Type: "array", XListType: ptr.To("map"), XListMapKeys: []string{"type"},
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Required: []string{"type"}, XPreserveUnknownFields: ptr.To(true),
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"type": text},
			}},
		},
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "mounts." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "mounts", Singular: "mount", Kind: "Mount", ListKind: "MountList", ShortNames: []string{"mo"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "Coat", Type: "string", JSONPath: ".spec.coat"},
				},
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.coat"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type:       "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec, "status": status},
				}},
			}},
		},
	}
}
