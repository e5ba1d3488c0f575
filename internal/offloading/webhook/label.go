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

// labelTimeout bounds the time to label one namespace. The API server waits longer for this webhook.
const labelTimeout = 5 * time.Second

// label labels a namespace so that its pods pass the webhook, and returns when the API server applies the label. The API server selects webhooks
// by a copy of the namespace that may be some milliseconds old. To detect when it is current, label creates an event as a dry run, whose
// webhook is selected by the same label. Other API servers of the cluster observe the label with the delay of any other change.
func (o *offloadings) label(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	var namespace corev1.Namespace
	if err := o.options.Live.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	// With its UID: an apply to a namespace that was just deleted would create another one. The field owner is that of the controller of
	// NamespaceOffloadings, which removes the label again.
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
			return fmt.Errorf("the API server does not select webhooks by the label %s yet: %w", labels.SchedulingEnabled, ctx.Err())
		}
	}
}

// seenText is the message with which answerProbe denies the probe.
const seenText = "the namespace is labelled as offloaded"

// probe reports whether the API server calls our webhooks for the namespace.
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
	return false, fmt.Errorf("probe whether the API server applies the label: %w", err)
}

// answerProbe denies the probe. The API server calls it only for labelled namespaces.
func answerProbe(context.Context, admission.Request) admission.Response {
	return admission.Denied(seenText)
}
