// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// ReportTimeout is how long a new use of a network waits for the report of a node that is Ready. An agent reports within seconds of its start, and
// its image is that of the controller manager.
const ReportTimeout = 2 * time.Minute

// Agents are the agents on nodes, as far as it matters for who is going to report.
type Agents struct {
	// Selector is that of their DaemonSet; nil if there is none, so that none reports.
	Selector map[string]string
	// Since is when the DaemonSet last changed: at an installation, or at an upgrade from a version whose agents do not report.
	Since time.Time
}

// AgentsOf reads a DaemonSet. A controller of it writes its status only, and what applies it again without a change leaves these times as they are.
func AgentsOf(set *appsv1.DaemonSet) Agents {
	a := Agents{Selector: set.Spec.Template.Spec.NodeSelector, Since: set.CreationTimestamp.Time}
	if a.Selector == nil {
		a.Selector = map[string]string{}
	}
	for _, one := range set.ManagedFields {
		if one.Subresource == "" && one.Time != nil && one.Time.After(a.Since) {
			a.Since = one.Time.Time
		}
	}
	return a
}

// on reports whether a node has an agent. The affinity of the DaemonSet excludes virtual nodes.
func (a Agents) on(node *corev1.Node) bool {
	if a.Selector == nil || node.Labels[labels.Type] == labels.TypeVirtualNode {
		return false
	}
	for key, value := range a.Selector {
		if node.Labels[key] != value {
			return false
		}
	}
	return true
}

// Unreported are nodes with an agent that have not reported what they reach.
type Unreported struct {
	// Awaited are Ready, and may report before Until.
	Awaited []string
	Until   time.Time
	// Others are not waited for: they are not Ready, or were silent for too long.
	Others []string
}

// Unreported returns them. All times are those of objects, so a restart of a process restarts no wait.
func (a Agents) Unreported(nodes []corev1.Node, reports []netv1alpha1.NodeReport, now time.Time) (u Unreported) {
	reported := make(map[string]bool, len(reports))
	for i := range reports {
		reported[reports[i].Name] = true
	}
	for i := range nodes {
		node := &nodes[i]
		if reported[node.Name] || !a.on(node) {
			continue
		}
		since, ready := readySince(node, now)
		if a.Since.After(since) {
			since = a.Since
		}
		if until := since.Add(ReportTimeout); ready && until.After(now) {
			u.Awaited = append(u.Awaited, node.Name)
			if until.After(u.Until) {
				u.Until = until
			}
			continue
		}
		u.Others = append(u.Others, node.Name)
	}
	slices.Sort(u.Awaited)
	slices.Sort(u.Others)
	return u
}

// readySince returns since when a node is Ready, by its own clock. One that is ahead of ours must not make us wait longer: then the age of the node counts.
func readySince(node *corev1.Node, now time.Time) (since time.Time, ready bool) {
	for i := range node.Status.Conditions {
		one := &node.Status.Conditions[i]
		if one.Type != corev1.NodeReady || one.Status != corev1.ConditionTrue {
			continue
		}
		if one.LastTransitionTime.After(now) {
			return node.CreationTimestamp.Time, true
		}
		return one.LastTransitionTime.Time, true
	}
	return time.Time{}, false
}
