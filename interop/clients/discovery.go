package main

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

func (s *Setting) rawConfig() *rest.Config {
	config := s.config()
	config.GroupVersion = &schema.GroupVersion{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config
}

// discover reads what is served in every way there is; all ways must agree.
func discover(ctx context.Context, s *Setting) (Report, error) {
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	aggregated := discovery.NewDiscoveryClientForConfigOrDie(s.config())
	plain := discovery.NewDiscoveryClientForConfigOrDie(s.config())
	plain.UseLegacyDiscovery = true
	together, err := resources(aggregated)
	if err != nil {
		return nil, err
	}
	separately, err := resources(plain)
	if err != nil {
		return nil, err
	}
	version, err := aggregated.ServerVersion()
	if err != nil {
		return nil, err
	}
	preferred, err := aggregated.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	old, err := aggregated.OpenAPISchema()
	if err != nil {
		return nil, err
	}
	report := Report{"preferred": len(preferred) > 5, "openapi v2": old.Swagger, "differences": apart(together, separately), "minor": version.Minor, "mounts": slices.ContainsFunc(together, func(line string) bool { return strings.HasPrefix(line, "mounts."+s.Group+" ") })}
	for name, part := range map[string]func(context.Context, *Setting) (any, error){"mapper": mapKinds, "openapi": readOpenAPI, "gzip": squeeze} {
		if report[name], err = part(ctx, s); err != nil {
			return nil, err
		}
	}
	return report, nil
}

func resources(client *discovery.DiscoveryClient) ([]string, error) {
	_, lists, err := client.ServerGroupsAndResources()
	var lines []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") { // only the aggregated form names one for subresources
				resource.SingularName = ""
			}
			verbs := append([]string{}, resource.Verbs...)
			sort.Strings(verbs)
			line := []string{
				resource.Name + "." + version.Group, version.Version, resource.Kind, resource.SingularName,
				strings.Join(resource.ShortNames, "+"), strings.Join(resource.Categories, "+"), strings.Join(verbs, "+"),
			}
			lines = append(lines, strings.Join(line, " "))
		}
	}
	sort.Strings(lines)
	return lines, err
}

// apart has the lines that are in one of them only.
func apart(first, second []string) []string {
	only := []string{}
	for _, line := range first {
		if !slices.Contains(second, line) {
			only = append(only, "aggregated: "+line)
		}
	}
	for _, line := range second {
		if !slices.Contains(first, line) {
			only = append(only, "plain: "+line)
		}
	}
	return only
}

func mapKinds(_ context.Context, s *Setting) (any, error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(s.config())))
	mapped := Report{}
	for _, kind := range []schema.GroupKind{
		{Kind: "Pod"}, {Group: "apps", Kind: "Deployment"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, {Group: s.Group, Kind: "Mount"},
	} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil {
			return nil, err
		}
		mapped[kind.Kind] = mapping.Resource.Resource + " " + string(mapping.Scope.Name())
	}
	full, err := restmapper.NewShortcutExpander(mapper, discovery.NewDiscoveryClientForConfigOrDie(s.config()), nil).
		ResourceFor(schema.GroupVersionResource{Resource: "mo"})
	mapped["mo"] = full.Resource
	return mapped, err
}

func readOpenAPI(_ context.Context, s *Setting) (any, error) {
	root := openapi3.NewRoot(discovery.NewDiscoveryClientForConfigOrDie(s.config()).OpenAPIV3())
	document, err := root.GVSpec(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		return nil, err
	}
	custom, err := root.GVSpec(s.mountVersion())
	if err != nil {
		return nil, err
	}
	_, described := document.Components.Schemas["io.k8s.api.apps.v1.Deployment"]
	var kinds []string
	for name := range custom.Components.Schemas {
		if strings.HasSuffix(name, ".v1.Mount") {
			kinds = append(kinds, "Mount")
		}
	}
	path := custom.Paths.Paths["/apis/"+s.Group+"/v1/namespaces/{namespace}/mounts/{name}"]
	return Report{"deployment": described, "custom": kinds, "custom path": path != nil && path.Patch != nil}, nil
}

// squeeze asks for a long answer twice: client-go always offers gzip, and net/http undoes it unseen.
func squeeze(ctx context.Context, s *Setting) (any, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	long := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "long"}, Data: map[string]string{"k": strings.Repeat("neigh ", 50_000)}}
	if _, err := s.typed().CoreV1().ConfigMaps(s.Namespace).Create(ctx, long, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	config := s.config()
	config.DisableCompression = true // net/http then leaves Accept-Encoding and the answer to us
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	read := func(encoding string) (*http.Response, []byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/namespaces/"+s.Namespace+"/configmaps/long", nil)
		if err != nil {
			return nil, nil, err
		}
		request.Header.Set("Accept-Encoding", encoding)
		response, err := client.Do(request)
		if err != nil {
			return nil, nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response, body, err
	}
	_, whole, err := read("identity")
	if err != nil {
		return nil, err
	}
	response, squeezed, err := read("gzip")
	if err != nil {
		return nil, err
	}
	reader, err := gzip.NewReader(strings.NewReader(string(squeezed)))
	if err != nil {
		return nil, err
	}
	again, err := io.ReadAll(reader)
	return Report{
		"encoding": response.Header.Get("Content-Encoding"), "vary": response.Header.Get("Vary"),
		"same": string(whole) == string(again), "smaller": len(squeezed) < len(whole)/2,
	}, err
}
