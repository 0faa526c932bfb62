package main

import (
	"context"
	"fmt"
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// useDynamic does with mounts what controllers of unknown kinds do.
func useDynamic(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	if err := s.defineMounts(ctx); err != nil {
		return nil, err
	}
	mounts := s.dynamic().Resource(s.mounts()).Namespace(s.Namespace)
	report := Report{}
	parts := map[string]func(context.Context, *Setting, dynamic.ResourceInterface) (Report, error){
		"create": createMounts, "apply": applyMounts, "patch": patchMounts,
		"finalizers": holdMounts, "collections": collectMounts,
	}
	for name, part := range parts {
		seen, err := part(ctx, s, mounts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		report[name] = seen
	}
	return report, nil
}

func field(object *unstructured.Unstructured, path ...string) any {
	if object == nil {
		return nil
	}
	found, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	return found
}

func createMounts(ctx context.Context, s *Setting, mounts dynamic.ResourceInterface) (Report, error) {
	made, err := mounts.Create(ctx, s.mount("created", "bay"), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, again := mounts.Create(ctx, s.mount("created", "bay"), metav1.CreateOptions{})
	_, invalid := mounts.Create(ctx, s.mount("spotted", "spotted"), metav1.CreateOptions{})
	_, tried := mounts.Create(ctx, s.mount("tried", "bay"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	_, missing := mounts.Get(ctx, "tried", metav1.GetOptions{})
	unknown := s.mount("unknown", "bay")
	unknown.Object["spec"].(map[string]any)["wings"] = int64(2)
	_, strict := mounts.Create(ctx, unknown, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	stale := made.DeepCopy()
	made.SetAnnotations(map[string]string{"a": "1"})
	updated, err := mounts.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	stale.SetAnnotations(map[string]string{"a": "2"})
	_, conflict := mounts.Update(ctx, stale, metav1.UpdateOptions{})
	generated := s.mount("", "grey")
	generated.SetGenerateName("made-")
	named, err := mounts.Create(ctx, generated, metav1.CreateOptions{})
	return Report{
		"defaulted": field(made, "spec", "colour"), "generation": updated.GetGeneration(), "again": reason(again),
		"invalid": reason(invalid), "dry run": reason(tried), "dry run stored": reason(missing), "strict": reason(strict),
		"stale": reason(conflict), "generated": len(named.GetName()),
	}, err
}

func applyMounts(ctx context.Context, s *Setting, mounts dynamic.ResourceInterface) (Report, error) {
	by := func(manager string, force bool) metav1.ApplyOptions {
		return metav1.ApplyOptions{FieldManager: manager, Force: force}
	}
	first, err := mounts.Apply(ctx, "applied", s.mount("applied", "bay"), by("one", false))
	if err != nil {
		return nil, err
	}
	_, same := mounts.Apply(ctx, "applied", s.mount("applied", "bay"), by("two", false))
	_, conflict := mounts.Apply(ctx, "applied", s.mount("applied", "grey"), by("two", false))
	forced, err := mounts.Apply(ctx, "applied", s.mount("applied", "grey"), by("two", true))
	if err != nil {
		return nil, err
	}
	status := s.mount("applied", "")
	unstructured.RemoveNestedField(status.Object, "spec")
	status.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	shown, err := mounts.ApplyStatus(ctx, "applied", status, by("status", false))
	if err != nil {
		return nil, err
	}
	again, err := mounts.ApplyStatus(ctx, "applied", status, by("status", false))
	if err != nil {
		return nil, err
	}
	var managers []string
	for _, entry := range again.GetManagedFields() {
		managers = append(managers, fmt.Sprintf("%s %s %s", entry.Manager, entry.Operation, entry.Subresource))
	}
	sort.Strings(managers)
	return Report{
		"first": field(first, "spec", "coat"), "same value": reason(same), "conflict": reason(conflict),
		"forced": field(forced, "spec", "coat"), "conditions": field(shown, "status", "conditions"),
		"status leaves spec": field(shown, "spec", "coat"), "managers": managers,
		"nothing new": shown.GetResourceVersion() == again.GetResourceVersion(),
	}, nil
}

func patchMounts(ctx context.Context, s *Setting, mounts dynamic.ResourceInterface) (Report, error) {
	if _, err := mounts.Create(ctx, s.mount("patched", "bay"), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	patch := func(kind types.PatchType, text string, subresources ...string) (*unstructured.Unstructured, error) {
		return mounts.Patch(ctx, "patched", kind, []byte(text), metav1.PatchOptions{}, subresources...)
	}
	merged, err := patch(types.MergePatchType, `{"metadata":{"labels":{"l":"1"}},"spec":{"height":3}}`)
	if err != nil {
		return nil, err
	}
	jsoned, err := patch(types.JSONPatchType, `[{"op":"test","path":"/spec/height","value":3},{"op":"remove","path":"/spec/height"}]`)
	if err != nil {
		return nil, err
	}
	_, failed := patch(types.JSONPatchType, `[{"op":"test","path":"/spec/coat","value":"grey"}]`)
	_, strategic := patch(types.StrategicMergePatchType, `{"spec":{"height":4}}`)
	status, err := patch(types.MergePatchType, `{"spec":{"height":9},"status":{"phase":"Ready"}}`, "status")
	return Report{
		"merge": field(merged, "spec", "height"), "generation": merged.GetGeneration(),
		"json": field(jsoned, "spec", "height"), "failed test": reason(failed), "strategic": reason(strategic),
		"status": field(status, "status", "phase"), "status leaves spec": field(status, "spec", "height"),
		"generation after status": status.GetGeneration(),
	}, err
}

func holdMounts(ctx context.Context, s *Setting, mounts dynamic.ResourceInterface) (Report, error) {
	held := s.mount("held", "bay")
	held.SetFinalizers([]string{"example.com/hold"})
	made, err := mounts.Create(ctx, held, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	other := types.UID("other")
	wrong := mounts.Delete(ctx, "held", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	uid := made.GetUID()
	if err := mounts.Delete(ctx, "held", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return nil, err
	}
	waiting, err := mounts.Get(ctx, "held", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	_, err = mounts.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/new","example.com/hold"]}}`), metav1.PatchOptions{})
	added := reason(err)
	_, err = mounts.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	_, gone := mounts.Get(ctx, "held", metav1.GetOptions{})
	return Report{
		"wrong uid": reason(wrong), "waits": waiting.GetDeletionTimestamp() != nil, "generation": waiting.GetGeneration(),
		"a new finalizer": added, "then": reason(gone),
	}, nil
}

func collectMounts(ctx context.Context, s *Setting, mounts dynamic.ResourceInterface) (Report, error) {
	for number := range 25 {
		mount := s.mount(fmt.Sprintf("many-%02d", number), []string{"bay", "grey"}[number%2])
		mount.SetLabels(map[string]string{"many": "", "third": fmt.Sprint(number % 3)})
		if _, err := mounts.Create(ctx, mount, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	count := func(options metav1.ListOptions) (int, error) {
		list, err := mounts.List(ctx, options)
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	}
	labelled, err := count(metav1.ListOptions{LabelSelector: "many,third in (0,1),third!=1"})
	if err != nil {
		return nil, err
	}
	coloured, err := count(metav1.ListOptions{LabelSelector: "many", FieldSelector: "spec.coat=grey"})
	if err != nil {
		return nil, err
	}
	named, err := count(metav1.ListOptions{FieldSelector: "metadata.name=many-07"})
	if err != nil {
		return nil, err
	}
	_, unselectable := count(metav1.ListOptions{FieldSelector: "spec.height=3"})
	pages, versions, err := turnPages(ctx, mounts)
	if err != nil {
		return nil, err
	}
	if err := mounts.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "third=0"}); err != nil {
		return nil, err
	}
	left, err := count(metav1.ListOptions{LabelSelector: "many"})
	return Report{
		"by label": labelled, "by field": coloured, "by name": named, "by another field": reason(unselectable),
		"pages": pages, "versions of pages": versions, "left": left,
	}, err
}

// turnPages reads ten at a time while something is added: pages are of one moment.
func turnPages(ctx context.Context, mounts dynamic.ResourceInterface) (pages []int, versions int, err error) {
	seen := map[string]bool{}
	options := metav1.ListOptions{LabelSelector: "many", Limit: 10}
	for {
		list, err := mounts.List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		pages, seen[list.GetResourceVersion()] = append(pages, len(list.Items)), true
		if list.GetContinue() == "" {
			return pages, len(seen), nil
		}
		options.Continue = list.GetContinue()
		annotation := fmt.Sprintf(`{"metadata":{"annotations":{"page":"%d"}}}`, len(pages))
		if _, err := mounts.Patch(ctx, "many-00", types.MergePatchType, []byte(annotation), metav1.PatchOptions{}); err != nil {
			return nil, 0, err
		}
	}
}
