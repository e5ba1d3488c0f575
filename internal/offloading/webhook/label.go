// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
)

// markTime bounds the work of one mark; the API server waits longer for us.
const markTime = 5 * time.Second

// mark labels a namespace, so that its pods pass the webhook, and returns when the API server knows it: it chooses webhooks by a copy
// of the namespace that may be some milliseconds old. To see that, it is asked for an event that is not stored, whose webhook is
// chosen by the same label. Other API servers of the cluster hear of the label as late as of any other change.
func (o *offloadings) mark(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, markTime)
	defer cancel()
	var namespace corev1.Namespace
	if err := o.options.Live.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	// With its UID: an apply to a namespace that has just gone would make another one. The controller of NamespaceOffloadings, in whose
	// name it is, takes the label away again.
	intent := coreapply.Namespace(name).WithUID(namespace.UID).WithLabels(map[string]string{labels.SchedulingEnabled: "true"})
	if err := ssa.NewApplier(o.options.Client, labels.OwnerOffloading).ApplyTo(ctx, intent, &namespace); err != nil {
		return err
	}
	for {
		seen, err := o.probe(ctx, name)
		if seen || err != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the API server does not take notice of the label %s: %w", labels.SchedulingEnabled, ctx.Err())
		}
	}
}

// seenText is what our answer to the probe says.
const seenText = "the namespace is marked as offloaded"

// probe asks whether the API server sends us what happens in the namespace.
func (o *offloadings) probe(ctx context.Context, namespace string) (seen bool, err error) {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "liqo-probe-", Labels: map[string]string{labels.LabelProbe: "true"}},
		EventTime:  metav1.NowMicro(), ReportingController: labels.OwnerOffloading, ReportingInstance: labels.OwnerOffloading,
		Action: "Probe", Reason: "Probe", Type: corev1.EventTypeNormal, Regarding: corev1.ObjectReference{Namespace: namespace},
	}
	err = o.options.Client.Create(ctx, event, client.DryRunAll)
	switch {
	case err == nil:
		return false, nil
	case strings.Contains(err.Error(), seenText):
		return true, nil
	case ctx.Err() != nil:
		return false, errors.Join(ctx.Err(), err)
	}
	return false, fmt.Errorf("ask whether the API server knows: %w", err)
}

// answerProbe is asked only in namespaces that are marked.
func answerProbe(context.Context, admission.Request) admission.Response {
	return admission.Denied(seenText)
}
