package main

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func sampleNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: "test://" + name, PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}},
		Status: corev1.NodeStatus{
			Capacity:  corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.36.0"},
		},
	}
}

func samplePodSpec(restart corev1.RestartPolicy) corev1.PodSpec {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web")}}, PeriodSeconds: 3}
	return corev1.PodSpec{
		RestartPolicy:                 restart,
		ServiceAccountName:            "default",
		TerminationGracePeriodSeconds: ptr.To(int64(7)),
		NodeSelector:                  map[string]string{"kubernetes.io/os": "linux"},
		HostNetwork:                   true,
		SecurityContext:               &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(0)), FSGroup: ptr.To(int64(5)), SupplementalGroups: []int64{1, 300}},
		Tolerations:                   []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(30))}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}},
		}}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		}},
		InitContainers: []corev1.Container{{Name: "init", Image: "i@sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Command: []string{"sh", "-c", "true"}}},
		Containers: []corev1.Container{{
			Name: "main", Image: "i:1", Args: []string{"--a", ""}, ReadinessProbe: probe,
			Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80, HostPort: 80}},
			Env: []corev1.EnvVar{
				{Name: "PLAIN", Value: "v"}, {Name: "EMPTY"},
				{Name: "FIELD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k", Optional: ptr.To(false)}}},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("1024Ki")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1500m")},
			},
			VolumeMounts:    []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}, {Name: "conf", MountPath: "/conf", ReadOnly: true, SubPath: "x"}},
			Lifecycle:       &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}}},
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
		Volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
			{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(int64(700))}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
			}}}},
		},
	}
}

// fullSamples has one object of each kind that Cluster API and its neighbours write, with the awkward fields filled in:
// quantities, numbers that may be names, bytes, times, pointers to zero, maps of lists, raw JSON.
func fullSamples() []client.Object {
	labels := map[string]string{"app": "sample"}
	selector := &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: samplePodSpec(corev1.RestartPolicyAlways)}
	once := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: samplePodSpec(corev1.RestartPolicyNever)}
	moment := metav1.NewTime(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC))
	precise := metav1.NewMicroTime(time.Date(2024, 5, 6, 7, 8, 9, 120000, time.UTC))
	meta := metav1.ObjectMeta{Labels: labels}
	rules := []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}}, {Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}
	claims := []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("5G")}},
		},
	}}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "", "b": "é\n"}, BinaryData: map[string][]byte{"z": {0, 255}}},
		&corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"empty": {}, "k": {1, 2}}, StringData: map[string]string{"s": "t"}},
		&corev1.Namespace{ObjectMeta: meta},
		sampleNode(""),
		&corev1.Pod{ObjectMeta: meta, Spec: template.Spec},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: labels, Ports: []corev1.ServicePort{{Name: "numbered", Port: 80, TargetPort: intstr.FromInt32(8080)}, {Name: "named", Port: 81, TargetPort: intstr.FromString("web")}}}},
		&corev1.ServiceAccount{ObjectMeta: meta, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "p"}}, AutomountServiceAccountToken: ptr.To(false)},
		&corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Reason: "R", Message: "m", Count: 2, FirstTimestamp: moment, LastTimestamp: moment, Source: corev1.EventSource{Component: "c"}, Type: "Normal"},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: claims[0].Spec},
		&corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: claims[0].Spec.AccessModes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/d"}},
		}},
		&eventsv1.Event{ObjectMeta: meta, EventTime: precise, ReportingController: "x.io/c", ReportingInstance: "i", Action: "A", Reason: "R", Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Note: "n", Type: "Normal", Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: precise}},
		&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("h"), LeaseDurationSeconds: ptr.To(int32(15)), AcquireTime: &precise, RenewTime: &precise, LeaseTransitions: ptr.To(int32(0))}},
		&rbacv1.Role{ObjectMeta: meta, Rules: rules[:1]},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "sa", Namespace: "default"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "g"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		mountDefinition("replaced"),
		&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once, BackoffLimit: ptr.To(int32(0)), Suspend: ptr.To(false), ActiveDeadlineSeconds: ptr.To(int64(9)), PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action: batchv1.PodFailurePolicyActionIgnore, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{1, 42}},
		}}}}},
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "@daily", TimeZone: ptr.To("Etc/UTC"), StartingDeadlineSeconds: ptr.To(int64(5)), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}}}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)), Selector: selector, Template: template, Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}}},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}},
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template, RevisionHistoryLimit: ptr.To(int32(0))}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template, ServiceName: "s", VolumeClaimTemplates: claims}},
		&appsv1.ControllerRevision{ObjectMeta: meta, Revision: 3, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"a":[1,2.5,null]}}`)}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("10%")), Selector: selector}},
		&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("c"), Rules: []networkingv1.IngressRule{{Host: "h.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		}}}}}}}},
		&networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector, Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("web")), Protocol: ptr.To(corev1.ProtocolTCP)}}}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}}}},
		&storagev1.StorageClass{ObjectMeta: meta, Provisioner: "p", Parameters: map[string]string{"a": "b"}, AllowVolumeExpansion: ptr.To(false)},
		&storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{Attacher: "a", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}}},
		&schedulingv1.PriorityClass{ObjectMeta: meta, Value: -5, Description: "d", PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}, Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "w.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionv1.Ignore),
			ClientConfig:   admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "n", Name: "s", Path: ptr.To("/p")}},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"never": "matches"}},
			Rules:          []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{"none.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"things"}}}},
		}}},
	}
}
