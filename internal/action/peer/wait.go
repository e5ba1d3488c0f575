// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/peering/reach"
)

// refusedAfter is how long a refusal must last before it ends the wait: at first the condition may still be that of an
// earlier attempt with another token.
const refusedAfter = 10 * time.Second

// stage is one step of a peering that the command reports.
type stage struct {
	condition discoveryv1alpha1.PeeringConditionType
	doing     string
	done      string
	passed    []discoveryv1alpha1.PeeringConditionStatus
}

// stages in the order of the reports. The clusters work on them in parallel.
var stages = []stage{
	{
		discoveryv1alpha1.AuthenticationStatus, "Waiting for authentication to the cluster %q", "Authenticated to cluster %q",
		[]discoveryv1alpha1.PeeringConditionStatus{discoveryv1alpha1.StatusEstablished},
	},
	{
		discoveryv1alpha1.OutgoingPeering, "Waiting for the outgoing peering to the remote cluster %q", "Outgoing peering activated to the remote cluster %q",
		[]discoveryv1alpha1.PeeringConditionStatus{discoveryv1alpha1.StatusEstablished},
	},
	{
		discoveryv1alpha1.NetworkStatus, "Waiting for the network to the remote cluster %q", "Network established to the remote cluster %q",
		[]discoveryv1alpha1.PeeringConditionStatus{discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.StatusExternal},
	},
}

// stagesOf are the stages of a peering. In-band, the network comes first, because all others go through it, unless the provider has invited this cluster.
func stagesOf(fc *discoveryv1alpha1.ForeignCluster) []stage {
	if reach.TunnelFirst(fc) {
		return []stage{stages[2], stages[0], stages[1]}
	}
	return stages
}

// peering follows one ForeignCluster through the stages.
type peering struct {
	name     string
	stages   []stage
	reached  int // stages passed
	reported map[discoveryv1alpha1.PeeringConditionType]string
	refused  time.Time
	last     *discoveryv1alpha1.ForeignCluster
	node     string // state of the virtual node
	progress action.Progress
}

// waitPeering watches until the virtual node of fc is Ready.
func waitPeering(ctx context.Context, c client.WithWatch, fc *discoveryv1alpha1.ForeignCluster, timeout time.Duration, p action.Progress) error {
	w := &peering{name: fc.Name, stages: stagesOf(fc), reported: map[discoveryv1alpha1.PeeringConditionType]string{}, progress: p}
	w.start()
	err := await.Follow(ctx, c, &discoveryv1alpha1.ForeignClusterList{}, func(fcs []discoveryv1alpha1.ForeignCluster) (bool, error) {
		if len(fcs) == 0 {
			return false, fmt.Errorf("ForeignCluster %q was deleted during the wait for its peering", w.name)
		}
		return w.observe(&fcs[0], time.Now())
	}, client.MatchingFields{"metadata.name": fc.Name})
	if err == nil {
		p.Start(fmt.Sprintf("Waiting for the virtual node of the remote cluster %q", fc.Name))
		err = w.waitNode(ctx, c)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = w.explain(timeout, err)
	}
	if err != nil {
		p.Stop()
		return err
	}
	p.Done("Peering successfully established")
	accept.ShowNetworks(ctx, c, fc.Name, p)
	return nil
}

func (w *peering) start() {
	if w.reached < len(w.stages) {
		w.progress.Start(fmt.Sprintf(w.stages[w.reached].doing, w.name))
	}
}

// observe reports the changes, and returns whether all stages are passed.
func (w *peering) observe(fc *discoveryv1alpha1.ForeignCluster, now time.Time) (bool, error) {
	w.last = fc
	for ; w.reached < len(w.stages); w.reached++ {
		current := w.stages[w.reached]
		condition := foreign.Condition(fc, current.condition)
		if !slices.Contains(current.passed, condition.Status) {
			break
		}
		if condition.Status == discoveryv1alpha1.StatusExternal {
			w.progress.Info("The network between the clusters is not Liqo's, so the command does not wait for it")
		} else {
			w.progress.Done(fmt.Sprintf(current.done, w.name))
		}
		if w.reached+1 < len(w.stages) {
			w.progress.Start(fmt.Sprintf(w.stages[w.reached+1].doing, w.name))
		}
	}
	bad := w.report(fc)
	switch {
	case bad == "":
		w.refused = time.Time{}
	case w.refused.IsZero():
		w.refused = now
	case now.Sub(w.refused) >= refusedAfter:
		return false, fmt.Errorf("the peering with %q is refused: %s", w.name, bad)
	}
	return w.reached == len(w.stages), nil
}

// report warns of each problem once, and returns the one that only the user can solve.
func (w *peering) report(fc *discoveryv1alpha1.ForeignCluster) (refusal string) {
	for _, condition := range fc.Status.PeeringConditions {
		switch condition.Status {
		case discoveryv1alpha1.StatusError, discoveryv1alpha1.StatusDenied, discoveryv1alpha1.StatusEmptyDenied:
		case discoveryv1alpha1.StatusDisconnecting:
			if condition.Type == discoveryv1alpha1.OutgoingPeering && w.reported[condition.Type] != foreign.Describe(condition) {
				w.reported[condition.Type] = foreign.Describe(condition)
				w.progress.Info("The peering before this one is still ending: " + foreign.Describe(condition))
			}
			continue
		default:
			delete(w.reported, condition.Type)
			continue
		}
		text := foreign.Describe(condition)
		if w.reported[condition.Type] != text {
			w.reported[condition.Type] = text
			w.progress.Warn(text)
		}
		if condition.Status != discoveryv1alpha1.StatusError || condition.Type == discoveryv1alpha1.ProcessForeignClusterStatus {
			refusal = text
		}
	}
	return refusal
}

func (w *peering) waitNode(ctx context.Context, c client.WithWatch) error {
	id := ""
	if w.last.Spec.ClusterIdentity != nil {
		id = w.last.Spec.ClusterIdentity.ClusterID
	}
	return await.Follow(ctx, c, &corev1.NodeList{}, func(nodes []corev1.Node) (bool, error) {
		w.node = "no virtual node was created"
		for i := range nodes {
			if installed.NodeReady(&nodes[i]) {
				w.progress.Done(fmt.Sprintf("Node %q created for remote cluster %q, and Ready%s", nodes[i].Name, w.name, closed(&nodes[i])))
				return true, nil
			}
			w.node = fmt.Sprintf("virtual node %q is not Ready: %s", nodes[i].Name, whyNotReady(&nodes[i]))
		}
		return false, nil
	}, client.MatchingLabels{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: id})
}

// closed reports that a node takes no pods although it is Ready.
func closed(node *corev1.Node) string {
	for _, taint := range node.Spec.Taints {
		if taint.Key == labels.TaintNoNewPods {
			return "; it takes no pods now (" + taint.Value + "), see: kubectl get offer -A -o yaml"
		}
	}
	return ""
}

func whyNotReady(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return strings.TrimSuffix(condition.Reason+": "+condition.Message, ": ")
		}
	}
	return "its kubelet has reported nothing yet"
}

// explain names the stages that were missing at the timeout.
func (w *peering) explain(timeout time.Duration, err error) error {
	missing := []string{}
	if w.last != nil && w.reached < len(w.stages) {
		for _, current := range w.stages[w.reached:] {
			if condition := foreign.Condition(w.last, current.condition); !slices.Contains(current.passed, condition.Status) {
				missing = append(missing, foreign.Describe(condition))
			}
		}
		for _, kind := range []discoveryv1alpha1.PeeringConditionType{discoveryv1alpha1.ProcessForeignClusterStatus, discoveryv1alpha1.APIServerStatus} {
			if condition := foreign.Condition(w.last, kind); condition.Status == discoveryv1alpha1.StatusError {
				missing = append(missing, foreign.Describe(condition))
			}
		}
	}
	if w.node != "" {
		missing = append(missing, w.node)
	}
	if len(missing) == 0 {
		missing = append(missing, "the ForeignCluster could not be read")
	}
	return fmt.Errorf("the peering with %q was not complete after %s: %s. The clusters keep trying; see `liqoctl status peer %s` (%w)",
		w.name, timeout, strings.Join(missing, "; "), w.name, err)
}
