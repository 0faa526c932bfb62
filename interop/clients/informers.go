package main

import (
	"context"
	"fmt"
	"net/http"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Log is what one informer told its handler: what was there at first, and then every change in order.
type Log struct {
	lock    sync.Mutex
	initial []string
	then    []string
}

func listen(informer cache.SharedIndexInformer) *Log {
	log := &Log{}
	note := func(initial bool, what string, obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			what, obj = what+" (found missing)", gone.Obj
		}
		object, err := meta.Accessor(obj)
		if err != nil {
			fail(err)
		}
		if object.GetName() == "kube-root-ca.crt" { // not ours: its publisher may come at any time
			return
		}
		log.lock.Lock()
		defer log.lock.Unlock()
		if initial {
			log.initial = append(log.initial, object.GetName())
		} else {
			log.then = append(log.then, what+" "+object.GetName())
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) { note(initial, "add", obj) },
		UpdateFunc: func(old, obj any) {
			was, _ := meta.Accessor(old)
			is, _ := meta.Accessor(obj)
			if was.GetResourceVersion() != is.GetResourceVersion() {
				note(false, "update", obj)
			}
		},
		DeleteFunc: func(obj any) { note(false, "delete", obj) },
	})
	if err != nil {
		fail(err)
	}
	return log
}

func (l *Log) seen() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.then)
}

func (l *Log) report() Report {
	l.lock.Lock()
	defer l.lock.Unlock()
	sort.Strings(l.initial)
	return Report{"initial": append([]string{}, l.initial...), "then": append([]string{}, l.then...)}
}

// requests counts what goes over the wire, to tell a WatchList from a list followed by a watch.
type requests struct {
	lock   sync.Mutex
	counts map[string]int
}

func (r *requests) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(request)
		query, kind := request.URL.Query(), "other"
		switch {
		case query.Get("sendInitialEvents") == "true":
			kind = "watchlist"
		case query.Get("watch") != "":
			kind = "watch"
		case request.Method == http.MethodGet:
			kind = "list"
		}
		if err == nil {
			kind = fmt.Sprintf("%s %d", kind, response.StatusCode)
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		r.counts[kind]++
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func watching(config *rest.Config, counted *requests) *rest.Config {
	config.Wrap(counted.wrap)
	return config
}

// inform runs one informer of each sort over the same objects and compares what their handlers are told.
func inform(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := s.put(ctx, name, nil); err != nil {
			return nil, err
		}
	}
	counted := &requests{counts: map[string]int{}}
	logs, synced := s.startInformers(ctx, counted)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("caches did not sync")
	}
	if err := s.shuffle(ctx); err != nil {
		return nil, err
	}
	report := Report{}
	for name, log := range logs {
		err := until(ctx, name, func(context.Context) (bool, error) { return log.seen() >= 5, nil })
		report[name] = log.report()
		if err != nil {
			return report, fmt.Errorf("%w: %v", err, report[name])
		}
	}
	counted.lock.Lock()
	report["requests"] = counted.counts
	counted.lock.Unlock()
	lost, err := s.loseTrack(ctx)
	report["after 410"] = lost
	return report, err
}

func (s *Setting) startInformers(ctx context.Context, counted *requests) (map[string]*Log, []cache.InformerSynced) {
	typed := informers.NewSharedInformerFactoryWithOptions(
		kubernetes.NewForConfigOrDie(watching(binary(s.config()), counted)), 0, informers.WithNamespace(s.Namespace))
	loose := dynamicinformer.NewFilteredDynamicSharedInformerFactory(
		dynamic.NewForConfigOrDie(watching(s.config(), counted)), 0, s.Namespace, nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(
		metadata.NewForConfigOrDie(watching(s.config(), counted)), 0, s.Namespace, nil)
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	all := map[string]cache.SharedIndexInformer{
		"typed configmaps":    typed.Core().V1().ConfigMaps().Informer(),
		"dynamic configmaps":  loose.ForResource(configMaps).Informer(),
		"dynamic mounts":      loose.ForResource(s.mounts()).Informer(),
		"metadata configmaps": partial.ForResource(configMaps).Informer(),
		"metadata mounts":     partial.ForResource(s.mounts()).Informer(),
	}
	logs, synced := map[string]*Log{}, []cache.InformerSynced{}
	for name, informer := range all {
		logs[name] = listen(informer)
		synced = append(synced, informer.HasSynced)
	}
	typed.Start(ctx.Done())
	loose.Start(ctx.Done())
	partial.Start(ctx.Done())
	return logs, synced
}

// put makes or labels a ConfigMap and a Mount of that name.
func (s *Setting) put(ctx context.Context, name string, labels map[string]string) error {
	configMaps, mounts := s.typed().CoreV1().ConfigMaps(s.Namespace), s.dynamic().Resource(s.mounts()).Namespace(s.Namespace)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"k": "v"}}
	mount := s.mount(name, "bay")
	mount.SetLabels(labels)
	if labels == nil {
		if _, err := configMaps.Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := mounts.Create(ctx, mount, metav1.CreateOptions{})
		return err
	}
	if _, err := configMaps.Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
		return err
	}
	live, err := mounts.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.SetLabels(labels)
	_, err = mounts.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func (s *Setting) remove(ctx context.Context, name string) error {
	if err := s.typed().CoreV1().ConfigMaps(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return s.dynamic().Resource(s.mounts()).Namespace(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (s *Setting) shuffle(ctx context.Context) error {
	steps := []func() error{
		func() error { return s.put(ctx, "b", map[string]string{"step": "1"}) },
		func() error { return s.remove(ctx, "a") },
		func() error { return s.put(ctx, "d", nil) },
		func() error { return s.put(ctx, "b", map[string]string{"step": "2"}) },
		func() error { return s.put(ctx, "a", nil) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ballast makes the server forget: it remembers changes up to some number of them or of bytes.
func (s *Setting) ballast(ctx context.Context) error {
	secrets := s.typed().CoreV1().Secrets(s.Namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ballast"}, Data: map[string][]byte{"k": make([]byte, 1_000_000)}}
	if _, err := secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	for number := range 36 {
		secret.Data["n"] = []byte{byte(number)}
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// loseTrack has a reflector come back with a version from before anything the server remembers: it is told 410, reads
// everything again, and its handlers learn the difference and nothing else.
func (s *Setting) loseTrack(ctx context.Context) (Report, error) {
	if err := s.ballast(ctx); err != nil {
		return nil, err
	}
	mounts := s.dynamic().Resource(s.mounts()).Namespace(s.Namespace) // the real server's memory of them began when they did
	var lock sync.Mutex
	fresh, resumed, gone := 0, 0, 0
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lock.Lock()
			defer lock.Unlock()
			fresh++
			return mounts.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			lock.Lock()
			defer lock.Unlock()
			if options.SendInitialEvents != nil {
				if fresh++; fresh == 1 {
					options.TimeoutSeconds = ptr.To(int64(2))
				}
				return mounts.Watch(ctx, options)
			}
			if resumed++; resumed > 1 {
				return mounts.Watch(ctx, options)
			}
			if err := s.put(ctx, "e", nil); err != nil {
				return nil, err
			}
			if err := s.remove(ctx, "c"); err != nil {
				return nil, err
			}
			options.ResourceVersion = "1"
			stream, err := mounts.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
				if apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
					lock.Lock()
					defer lock.Unlock()
					gone++
				}
				return event, true
			}), nil
		},
	}
	informer := cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, nil)
	log := listen(informer)
	go informer.RunWithContext(ctx)
	err := until(ctx, "what was missed", func(context.Context) (bool, error) { return log.seen() >= 2, nil })
	time.Sleep(300 * time.Millisecond)
	report := log.report()
	sort.Strings(report["then"].([]string))
	lock.Lock()
	defer lock.Unlock()
	report["told it is gone"], report["fresh starts"] = gone, fresh
	return report, err
}
