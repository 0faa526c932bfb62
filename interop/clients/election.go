package main

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// history is who led, in order.
type history struct {
	lock    sync.Mutex
	leaders []string
}

func (h *history) note(who string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.leaders = append(h.leaders, who)
}

func (h *history) count() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return len(h.leaders)
}

// elect has three candidates for one Lease: the first vanishes without a word, the second steps down.
func elect(ctx context.Context, s *Setting) (Report, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	told := &history{}
	vanishes, vanish := context.WithCancel(ctx)
	defer vanish()
	stepsDown, stepDown := context.WithCancel(ctx)
	defer stepDown()
	campaigns := []struct {
		who     string
		ctx     context.Context
		release bool
	}{{"first", vanishes, false}, {"second", stepsDown, true}, {"third", ctx, true}}
	var waits []time.Duration
	for number, campaign := range campaigns {
		began := time.Now()
		go s.campaign(campaign.ctx, campaign.who, campaign.release, told)
		switch number {
		case 1:
			time.Sleep(500 * time.Millisecond) // it must not lead while the first one does
			if told.count() == 1 {
				vanish()
			}
		case 2:
			stepDown()
		}
		err := until(ctx, campaign.who+" to lead", func(context.Context) (bool, error) { return told.count() > number, nil })
		if err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
	}
	lease, err := s.typed().CoordinationV1().Leases(s.Namespace).Get(ctx, "herd", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return Report{
		"leaders":                  told.leaders,
		"holder":                   *lease.Spec.HolderIdentity,
		"transitions":              *lease.Spec.LeaseTransitions,
		"seconds":                  *lease.Spec.LeaseDurationSeconds,
		"renewed after acquired":   !lease.Spec.RenewTime.Before(lease.Spec.AcquireTime),
		"silence is waited out":    waits[1] > time.Second,
		"stepping down is quicker": waits[2] < 1500*time.Millisecond,
	}, nil
}

func (s *Setting) campaign(ctx context.Context, who string, release bool, told *history) {
	client := s.typed()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: "herd"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: who},
		},
		LeaseDuration:   2 * time.Second,
		RenewDeadline:   1500 * time.Millisecond,
		RetryPeriod:     200 * time.Millisecond,
		ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { told.note(who) },
			OnStoppedLeading: func() {},
		},
	})
}
