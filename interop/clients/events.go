package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// recordEvents says the same thing three times with each of the two recorders, which then count instead of repeating.
func recordEvents(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	client := s.typed()
	about, err := client.CoreV1().ConfigMaps(s.Namespace).Create(
		ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "about"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	old := record.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recent := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer recent.Shutdown()
	recent.StartRecordingToSink(ctx.Done())
	oldRecorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "old"})
	recentRecorder := recent.NewRecorder(scheme.Scheme, "example.com/recent")
	for range 3 {
		oldRecorder.Event(about, corev1.EventTypeWarning, "Shied", "at a gate")
		recentRecorder.Eventf(about, nil, corev1.EventTypeNormal, "Groomed", "Grooming", "with a %s", "brush")
	}
	report := Report{}
	err = until(ctx, "both counts", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=about"})
		if err != nil {
			return false, err
		}
		for _, event := range list.Items {
			seen := Report{"count": event.Count, "type": event.Type, "message": event.Message, "by": event.Source.Component + event.ReportingController}
			if event.Series != nil {
				seen["series"] = event.Series.Count > 1
			}
			report[event.Reason] = seen
		}
		shied, _ := report["Shied"].(Report)
		groomed, _ := report["Groomed"].(Report)
		return len(list.Items) == 2 && shied["count"] == int32(3) && groomed["series"] == true, nil
	})
	if err != nil {
		return report, err
	}
	list, err := client.EventsV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Groomed"})
	if err != nil {
		return nil, err
	}
	for _, event := range list.Items {
		report["in events.k8s.io"] = Report{"note": event.Note, "action": event.Action, "regarding": event.Regarding.Name, "controller": event.ReportingController}
	}
	return report, nil
}
