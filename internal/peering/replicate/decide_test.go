// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

func TestEndingDeadline(t *testing.T) {
	zero := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		drained       time.Duration
		forced, ready bool
		want          time.Duration
	}{
		"ready, nothing to drain":    {0, false, true, 30 * time.Second},
		"ready, drained after 40 s":  {40 * time.Second, false, true, 70 * time.Second},
		"ready, drained at its end":  {120 * time.Second, false, true, 150 * time.Second},
		"ready, seen too late":       {time.Hour, false, true, 150 * time.Second},
		"silent, nothing to drain":   {0, false, false, 45 * time.Second},
		"silent, drained after 25 s": {25 * time.Second, false, false, 45 * time.Second},
		"silent after a long drain":  {110 * time.Second, false, false, 115 * time.Second},
		"forced":                     {10 * time.Second, true, true, 0},
		"forced and silent":          {10 * time.Second, true, false, 0},
	} {
		end := ending{deleted: zero, drained: zero.Add(test.drained), forced: test.forced, ready: test.ready}
		if got := end.deadline().Sub(zero); got != test.want {
			t.Errorf("%s: %s after the deletion, want %s", name, got, test.want)
		}
	}
}

func TestCopied(t *testing.T) {
	local := &metav1.ObjectMeta{
		Name: "rome", Namespace: "here", Finalizers: []string{"f"},
		Labels:      map[string]string{labels.Replication: "true", labels.RemoteID: "milan-id", labels.ClusterID: "milan-id", "a": "b"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", labels.ForceUnpeer: "true", "c": "d"},
	}
	want := meta{
		name: "rome", namespace: "there",
		labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "rome-id",
			labels.RemoteID: "milan-id", labels.ClusterID: "rome-id", "a": "b",
		},
		annotations: map[string]string{"c": "d"},
	}
	if diff := cmp.Diff(want, copied(local, "rome-id", "there"), cmp.AllowUnexported(meta{})); diff != "" {
		t.Error(diff)
	}
	if local.Labels[labels.Replication] != "true" || len(local.Annotations) != 3 {
		t.Error("the local object was changed")
	}
}

func TestPeerOf(t *testing.T) {
	for name, test := range map[string]struct {
		meta metav1.ObjectMeta
		id   string
		ours bool
	}{
		"wanted":                     {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "true", labels.RemoteID: "x"}}, "x", true},
		"a copy":                     {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "false", labels.RemoteID: "x"}}, "x", false},
		"no peer named":              {metav1.ObjectMeta{Labels: map[string]string{labels.Replication: "true"}}, "", false},
		"a stranger's":               {metav1.ObjectMeta{}, "", false},
		"lost its labels, was sent":  {metav1.ObjectMeta{Finalizers: []string{labels.FinalizerReplication}}, "", true},
		"lost one label and is sent": {metav1.ObjectMeta{Labels: map[string]string{labels.RemoteID: "x"}, Finalizers: []string{labels.FinalizerReplication}}, "x", true},
	} {
		if id, ours := peerOf(&test.meta); id != test.id || ours != test.ours {
			t.Errorf("%s: %q %t, want %q %t", name, id, ours, test.id, test.ours)
		}
	}
}

func TestObservedGenerationIsTranslated(t *testing.T) {
	slice := func(generation, observed int64, node string) *sharingv1alpha1.ResourceSlice {
		return &sharingv1alpha1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", Generation: generation},
			Spec:       sharingv1alpha1.ResourceSliceSpec{NodeName: node},
			Status:     sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted, ObservedGeneration: observed},
		}
	}
	for name, test := range map[string]struct {
		local, remote *sharingv1alpha1.ResourceSlice
		want          int64
	}{
		"answered":                          {slice(7, 6, "a"), slice(2, 2, "a"), 7},
		"the provider has not answered yet": {slice(7, 6, "a"), slice(3, 2, "a"), 6},
		"the copy is behind":                {slice(7, 6, "b"), slice(2, 2, "a"), 6},
	} {
		if got := *sliceHere(test.local, test.remote).Status.ObservedGeneration; got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	silent := slice(1, 0, "a")
	silent.Status.Phase = ""
	if sliceHere(slice(1, 0, "a"), silent) != nil {
		t.Error("a provider that has said nothing was quoted")
	}
}

func TestPlainlyIsStable(t *testing.T) {
	dial := func(port int, err error) error {
		return &url.Error{Op: "Get", URL: "https://x/livez", Err: &net.OpError{
			Op: "dial", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{Port: 6443}, Err: os.NewSyscallError("connect", err),
		}}
	}
	for want, err := range map[string]error{
		"dial: connection refused": dial(40001, syscall.ECONNREFUSED),
		"dial: no route to host":   dial(40002, syscall.EHOSTUNREACH),
		"no answer within 5s":      &url.Error{Op: "Get", Err: fmt.Errorf("%w", context.DeadlineExceeded)},
		"the name x is not known":  &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Name: "x", Err: "no such host"}}},
		"something":                errors.New("something"),
	} {
		if got := plainly(err, 5*time.Second); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
