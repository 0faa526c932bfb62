package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	patience     = time.Minute // the real collector looks for new kinds every 30 seconds
)

// Setting is where a command works and with what.
type Setting struct {
	Kubeconfig, Group, Namespace string
	Count                        int
}

func (s *Setting) config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		fail(err)
	}
	config.QPS = -1
	return config
}

// typed has clients that send protobuf and prefer it in answers, as controllers of the control plane do.
func (s *Setting) typed() *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(binary(s.config()))
}

func (s *Setting) dynamic() *dynamic.DynamicClient { return dynamic.NewForConfigOrDie(s.config()) }

func (s *Setting) metadata() metadata.Interface { return metadata.NewForConfigOrDie(s.config()) }

func binary(config *rest.Config) *rest.Config {
	config.ContentType = protobufType
	config.AcceptContentTypes = protobufType + "," + jsonType
	return config
}

// enter makes the namespace to work in, with the account its pods need.
func (s *Setting) enter(ctx context.Context) error {
	if s.Namespace != "" {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "clients-"}}
	made, err := s.typed().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.Namespace = made.Name
	return until(ctx, "the default service account", func(ctx context.Context) (bool, error) {
		_, err := s.typed().CoreV1().ServiceAccounts(s.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ignoreNotFound(err)
	})
}

// until waits for a condition, and says which one did not come true.
func until(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, condition); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// reason is the machine-readable part of an error; "" for none.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if found := apierrors.ReasonForError(err); found != metav1.StatusReasonUnknown {
		return string(found)
	}
	return "not a status: " + err.Error()
}
