package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "clients.example.com/stabled"

// stable keeps a ConfigMap for each Mount and says so in its status.
type stable struct {
	client.Client
	scheme   *runtime.Scheme
	released atomic.Int64
	wrong    sync.Map
}

func (r *stable) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, request)
	switch why := reason(err); metav1.StatusReason(why) {
	case "", metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists, metav1.StatusReasonNotFound:
		// the cache was behind: it is tried again
	default:
		r.wrong.Store(why, true)
	}
	return result, err
}

func (r *stable) complaints() []string {
	all := []string{}
	r.wrong.Range(func(why, _ any) bool {
		all = append(all, why.(string))
		return true
	})
	return all
}

func (r *stable) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	mount := &Mount{}
	if err := r.Get(ctx, request.NamespacedName, mount); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := mount.DeepCopyObject().(*Mount)
	if !mount.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(mount, finalizer) {
			r.released.Add(1)
			return ctrl.Result{}, client.IgnoreNotFound(r.Patch(ctx, mount, client.MergeFrom(before)))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(mount, finalizer) {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return ctrl.Result{}, r.Patch(ctx, mount, patch)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: mount.Namespace, Name: mount.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, owned, func() error {
		owned.Data = map[string]string{"coat": mount.Spec.Coat}
		return controllerutil.SetControllerReference(mount, owned, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	mount.Status.Phase, mount.Status.ObservedGeneration = "Stabled", mount.Generation
	meta.SetStatusCondition(&mount.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stabled"})
	return ctrl.Result{}, r.Status().Patch(ctx, mount, client.MergeFrom(before))
}

// manage runs a whole controller-runtime manager over many objects until nothing is left to do.
func manage(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return nil, err
	}
	kinds.AddKnownTypes(s.mountVersion(), &Mount{}, &MountList{})
	metav1.AddToGroupVersion(kinds, s.mountVersion())
	manager, err := ctrl.NewManager(s.config(), ctrl.Options{
		Scheme:                  kinds,
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{s.Namespace: {}}},
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "stable",
		LeaderElectionNamespace: s.Namespace,
	})
	if err != nil {
		return nil, err
	}
	reconciler := &stable{Client: manager.GetClient(), scheme: kinds}
	err = ctrl.NewControllerManagedBy(manager).For(&Mount{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).Complete(reconciler)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	report, err := s.herd(ctx, reconciler)
	stop()
	if err != nil {
		return report, err
	}
	return report, <-ended
}

func (s *Setting) herd(ctx context.Context, reconciler *stable) (Report, error) {
	mounts, configMaps := s.dynamic().Resource(s.mounts()).Namespace(s.Namespace), s.typed().CoreV1().ConfigMaps(s.Namespace)
	for number := range s.Count {
		if _, err := mounts.Create(ctx, s.mount(fmt.Sprintf("mount-%03d", number), "bay"), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	counts := func(ctx context.Context) (total, ready, owned int, err error) {
		list, err := mounts.List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, 0, 0, err
		}
		for _, mount := range list.Items {
			if field(&mount, "status", "phase") == "Stabled" && field(&mount, "status", "observedGeneration") == mount.GetGeneration() {
				ready++
			}
		}
		held, err := configMaps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		if err != nil {
			return 0, 0, 0, err
		}
		return len(list.Items), ready, len(held.Items), nil
	}
	wanted := func(count int) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			total, ready, owned, err := counts(ctx)
			return total == count && ready == count && owned == count, err
		}
	}
	if err := until(ctx, "every mount to be stabled", wanted(s.Count)); err != nil {
		return nil, err
	}
	if err := configMaps.Delete(ctx, "mount-000", metav1.DeleteOptions{}); err != nil { // its owner is told, and makes it again
		return nil, err
	}
	if err := until(ctx, "the deleted ConfigMap to be back", wanted(s.Count)); err != nil {
		return nil, err
	}
	gone := s.Count / 4
	for number := range gone {
		if err := mounts.Delete(ctx, fmt.Sprintf("mount-%03d", number), metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
	}
	if err := until(ctx, "deleted mounts and what they owned to be gone", wanted(s.Count-gone)); err != nil {
		return nil, err
	}
	quiet, err := s.staysQuiet(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := s.typed().CoordinationV1().Leases(s.Namespace).Get(ctx, "stable", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	total, ready, owned, err := counts(ctx)
	return Report{
		"mounts": total, "ready": ready, "owned": owned, "released": reconciler.released.Load() >= int64(gone), "errors": reconciler.complaints(),
		"led": lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "", "quiet": quiet,
	}, err
}

// staysQuiet is whether a settled manager writes nothing more to its objects.
func (s *Setting) staysQuiet(ctx context.Context) (bool, error) {
	mounts := s.dynamic().Resource(s.mounts()).Namespace(s.Namespace)
	newest := func() (map[string]string, error) {
		list, err := mounts.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for _, mount := range list.Items {
			versions[mount.GetName()] = mount.GetResourceVersion()
		}
		return versions, nil
	}
	before, err := newest()
	if err != nil {
		return false, err
	}
	time.Sleep(500 * time.Millisecond)
	after, err := newest()
	return fmt.Sprint(before) == fmt.Sprint(after), err
}
