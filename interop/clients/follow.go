package main

import (
	"bufio"
	"context"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	corev1 "k8s.io/api/core/v1"
)

// follow keeps informers running while the server is killed and started under them. It names its namespace first; each
// line on stdin is answered with what the caches hold (name to resourceVersion) and what their handlers were told so far.
func follow(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	typed := informers.NewSharedInformerFactoryWithOptions(s.typed(), 0, informers.WithNamespace(s.Namespace))
	loose := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic(), 0, s.Namespace, nil)
	all := map[string]cache.SharedIndexInformer{
		"typed configmaps":   typed.Core().V1().ConfigMaps().Informer(),
		"dynamic configmaps": loose.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer(),
		"dynamic mounts":     loose.ForResource(s.mounts()).Informer(),
	}
	logs := map[string]*Log{}
	for name, informer := range all {
		logs[name] = listen(informer)
	}
	typed.Start(ctx.Done())
	loose.Start(ctx.Done())
	for _, informer := range all {
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	}
	write(Report{"namespace": s.Namespace})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && ctx.Err() == nil {
		answer := Report{}
		for name, informer := range all {
			held := logs[name].report()
			held["holds"] = holds(informer)
			answer[name] = held
		}
		write(answer)
	}
	return nil, nil
}

func holds(informer cache.SharedIndexInformer) map[string]string {
	held := map[string]string{}
	for _, obj := range informer.GetStore().List() {
		object, err := meta.Accessor(obj)
		if err != nil {
			fail(err)
		}
		if object.GetName() != "kube-root-ca.crt" {
			held[object.GetName()] = object.GetResourceVersion()
		}
	}
	return held
}
