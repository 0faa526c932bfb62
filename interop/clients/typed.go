package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// useTyped does with built-in kinds what Cluster API's controllers do, in protobuf.
func useTyped(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	report := Report{}
	parts := map[string]func(context.Context, *Setting, *kubernetes.Clientset) (Report, error){
		"secrets": typedSecrets, "config maps": typedConfigMaps, "nodes": typedNodes, "pods": typedPods, "tokens": typedTokens,
		"rbac": typedRBAC, "jobs": typedJobs, "namespaces": typedNamespaces, "definitions": typedDefinitions, "scale": typedScale,
	}
	for name, part := range parts {
		seen, err := part(ctx, s, s.typed())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		report[name] = seen
	}
	return report, nil
}

func typedSecrets(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	secrets := client.CoreV1().Secrets(s.Namespace)
	made, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "c"}},
		Type:       "cluster.x-k8s.io/secret",
		Data:       map[string][]byte{"value": {0, 1, 0xff}},
		StringData: map[string]string{"text": "plain"},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	made.Data["value"] = []byte("new")
	updated, err := secrets.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	_, stale := secrets.Update(ctx, made, metav1.UpdateOptions{})
	updated.Type = "other"
	_, invalid := secrets.Update(ctx, updated, metav1.UpdateOptions{})
	list, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: "cluster.x-k8s.io/cluster-name=c", FieldSelector: "type=cluster.x-k8s.io/secret"})
	if err != nil {
		return nil, err
	}
	uid := made.UID
	err = secrets.Delete(ctx, "s", metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err != nil {
		return nil, err
	}
	_, gone := secrets.Get(ctx, "s", metav1.GetOptions{})
	return Report{
		"value": string(list.Items[0].Data["value"]), "text": string(list.Items[0].Data["text"]), "listed": len(list.Items),
		"stale": reason(stale), "another type": reason(invalid), "gone": reason(ignoreForeground(ctx, secrets.Get, gone)),
	}, nil
}

// ignoreForeground waits for the collector when a foreground deletion is still under way.
func ignoreForeground(ctx context.Context, get func(context.Context, string, metav1.GetOptions) (*corev1.Secret, error), gone error) error {
	_ = until(ctx, "the secret to go", func(ctx context.Context) (bool, error) {
		_, gone = get(ctx, "s", metav1.GetOptions{})
		return gone != nil, nil
	})
	return gone
}

func typedConfigMaps(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	configMaps := client.CoreV1().ConfigMaps(s.Namespace)
	wanted := applycore.ConfigMap("applied", s.Namespace).WithData(map[string]string{"a": "1"}).WithBinaryData(map[string][]byte{"b": {7}})
	applied, err := configMaps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return nil, err
	}
	other := applycore.ConfigMap("applied", s.Namespace).WithData(map[string]string{"a": "2"})
	_, conflict := configMaps.Apply(ctx, other, metav1.ApplyOptions{FieldManager: "two"})
	extracted, err := applycore.ExtractConfigMap(applied, "one")
	if err != nil {
		return nil, err
	}
	patched, err := configMaps.Patch(ctx, "applied", types.StrategicMergePatchType, []byte(`{"data":{"a":null,"c":"3"}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	fixed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Immutable: ptr.To(true)}
	if fixed, err = configMaps.Create(ctx, fixed, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	fixed.Data = map[string]string{"x": "y"}
	_, immutable := configMaps.Update(ctx, fixed, metav1.UpdateOptions{})
	if err := configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=fixed"}); err != nil {
		return nil, err
	}
	_, gone := configMaps.Get(ctx, "fixed", metav1.GetOptions{})
	return Report{
		"conflict": reason(conflict), "extracted": extracted.Data, "patched": patched.Data, "immutable": reason(immutable), "collected": reason(gone),
	}, nil
}

func typedNodes(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	nodes, name := client.CoreV1().Nodes(), "node-"+s.Namespace
	made, err := nodes.Create(ctx, sampleNode(name), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	ready, err := nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	cordoned, err := nodes.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	list, err := nodes.List(ctx, metav1.ListOptions{FieldSelector: "spec.unschedulable=true,metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	return Report{
		"provider": ready.Spec.ProviderID == "test://"+name, "cpu": ready.Status.Capacity.Cpu().String(), "memory": ready.Status.Capacity.Memory().String(),
		"condition": string(ready.Status.Conditions[0].Type), "taints": len(cordoned.Spec.Taints), "listed": len(list.Items),
	}, nodes.Delete(ctx, name, metav1.DeleteOptions{})
}

func typedPods(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	pods := client.CoreV1().Pods(s.Namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "p"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:1"}}},
	}
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	budgets := client.PolicyV1().PodDisruptionBudgets(s.Namespace)
	budget, err := budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString("50%")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	// Unseen by its controller it would be "come back in ten seconds", which client-go does unasked.
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1}
	if _, err := budgets.UpdateStatus(ctx, budget, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	made.Status.Phase = corev1.PodRunning
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	made.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	running, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	bound := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	if bound != nil {
		return nil, bound
	}
	placed, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n,status.phase=Running"})
	if err != nil {
		return nil, err
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}}
	refused := pods.EvictV1(ctx, eviction)
	if err := budgets.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	if err := pods.EvictV1(ctx, eviction); err != nil {
		return nil, err
	}
	_, gone := pods.Get(ctx, "p", metav1.GetOptions{})
	return Report{
		"quality": string(made.Status.QOSClass), "pull": string(made.Spec.Containers[0].ImagePullPolicy),
		"phase": string(running.Status.Phase), "placed": len(placed.Items), "protected": reason(refused), "evicted": reason(gone),
	}, nil
}

func typedScale(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	deployments, labels := client.AppsV1().Deployments(s.Namespace), map[string]string{"app": "d"}
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	scale, err := deployments.GetScale(ctx, "d", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	was := scale.Spec.Replicas
	scale.Spec.Replicas = 0
	scaled, err := deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	_, stale := deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	return Report{"was": was, "is": scaled.Spec.Replicas, "selector": scaled.Status.Selector, "stale": reason(stale)}, nil
}

func typedTokens(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	accounts := client.CoreV1().ServiceAccounts(s.Namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "groom"}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	issued, err := accounts.CreateToken(ctx, "groom", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(900))},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
	known, err := client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := s.config()
	config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = nil, nil
	config.BearerToken = issued.Status.Token
	self, err := kubernetes.NewForConfigOrDie(binary(config)).AuthenticationV1().SelfSubjectReviews().Create(
		ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, forbidden := kubernetes.NewForConfigOrDie(binary(config)).CoreV1().Secrets(s.Namespace).List(ctx, metav1.ListOptions{})
	user := "system:serviceaccount:" + s.Namespace + ":groom"
	return Report{
		"seconds": *issued.Spec.ExpirationSeconds, "authenticated": known.Status.Authenticated, "user": known.Status.User.Username == user,
		"self": self.Status.UserInfo.Username == user, "secrets": reason(forbidden),
	}, nil
}

func typedRBAC(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}}},
	}
	if _, err := client.RbacV1().Roles(s.Namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "jane", APIGroup: rbacv1.GroupName}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}
	if _, err := client.RbacV1().RoleBindings(s.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	may := func(name string) (bool, error) {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "jane", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"x"}},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.Namespace, Verb: "get", Resource: "secrets", Name: name},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	}
	var one, two bool
	err := until(ctx, "jane's rights", func(context.Context) (bool, error) { // the real server learns of them by a watch
		var err error
		one, err = may("one")
		return one, err
	})
	if err != nil {
		return nil, err
	}
	if two, err = may("two"); err != nil {
		return nil, err
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.Namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	binding.RoleRef.Name = "other"
	_, fixed := client.RbacV1().RoleBindings(s.Namespace).Update(ctx, binding, metav1.UpdateOptions{})
	return Report{"one": one, "two": two, "rules": len(rules.Status.ResourceRules) > 0, "another role": reason(fixed)}, nil
}

func typedJobs(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	jobs := client.BatchV1().Jobs(s.Namespace)
	made, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j"},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To(int32(0)), TTLSecondsAfterFinished: ptr.To(int32(60)), ManagedBy: ptr.To("example.com/runner"),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	made.Status.StartTime, made.Status.CompletionTime, made.Status.Succeeded = &now, &now, 1
	made.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	made.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now},
	}
	done, err := jobs.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	err = jobs.Delete(ctx, "j", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	return Report{
		"selector": made.Spec.Selector.MatchLabels["batch.kubernetes.io/controller-uid"] == string(made.UID),
		"labels":   len(made.Spec.Template.Labels), "parallelism": *made.Spec.Parallelism, "succeeded": done.Status.Succeeded,
		"time kept": done.Status.CompletionTime.Unix() == now.Unix(),
	}, err
}

func typedNamespaces(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "short-lived-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = client.CoreV1().ConfigMaps(made.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inside"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	_, late := client.CoreV1().ConfigMaps(made.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	err = until(ctx, "the namespace to go", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, made.Name, metav1.GetOptions{})
		return err != nil, ignoreNotFound(err)
	})
	refused := reason(late)
	return Report{
		"phase": string(made.Status.Phase), "finalizers": made.Spec.Finalizers, "label": made.Labels["kubernetes.io/metadata.name"] == made.Name,
		"too late": refused == string(metav1.StatusReasonForbidden) || refused == string(metav1.StatusReasonNotFound),
	}, err
}

func typedDefinitions(ctx context.Context, s *Setting, client *kubernetes.Clientset) (Report, error) {
	definitions := apiextensions.NewForConfigOrDie(binary(s.config())).ApiextensionsV1().CustomResourceDefinitions()
	group := s.Namespace + ".example.com"
	made, err := definitions.Create(ctx, mountDefinition(group), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	schema := made.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	enum, byDefault := schema.Properties["coat"].Enum, schema.Properties["colour"].Default
	err = until(ctx, "the definition to be there", func(ctx context.Context) (bool, error) {
		found, err := definitions.Get(ctx, made.Name, metav1.GetOptions{})
		return err == nil && len(found.Status.Conditions) == 2 && len(found.Status.StoredVersions) == 1, err
	})
	if err != nil {
		return nil, err
	}
	if err := definitions.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	err = until(ctx, "the definition to go", func(ctx context.Context) (bool, error) {
		_, err := definitions.Get(ctx, made.Name, metav1.GetOptions{})
		return err != nil, ignoreNotFound(err)
	})
	return Report{"enum": string(enum[1].Raw), "default": string(byDefault.Raw), "minimum": *schema.Properties["height"].Minimum}, err
}
