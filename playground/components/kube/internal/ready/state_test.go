// SPDX-License-Identifier: Apache-2.0

package ready

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func node(name string, status corev1.ConditionStatus, reason, message string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message}}
	}
	return n
}

func deployment(name string, observed int64) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: observed,
			Conditions:         []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
		},
	}
}

func TestEvaluate(t *testing.T) {
	up := node("a", corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	down := node("b", corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready")
	metrics := &apiregistrationv1.APIService{Status: apiregistrationv1.APIServiceStatus{
		Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}},
	}}
	other, gone := node("liqo-milan", corev1.ConditionTrue, "KubeletReady", "the remote cluster answers"),
		node("liqo-naples", corev1.ConditionFalse, "KubeletNotReady", "")
	other.Labels = map[string]string{"liqo.io/type": "virtual-node"}
	gone.Labels = other.Labels
	var many []*corev1.Node
	for i := range 7 {
		many = append(many, node(fmt.Sprint("h-", i), "", "", ""))
	}
	for name, test := range map[string]struct {
		want criteria
		seen snapshot
		line string
		text string
	}{
		"nothing requested": {criteria{}, snapshot{}, `{"api":true,"nodes":{"ready":0,"total":0,"want":0},"done":true}`, "0 of 0 nodes are Ready"},
		"one of two": {
			criteria{nodes: 2},
			snapshot{nodes: []*corev1.Node{down, up}},
			`{"api":true,"nodes":{"ready":1,"total":2,"want":2},"notReady":["b: KubeletNotReady container runtime network not ready"],"done":false}`,
			"1 of 2 nodes are Ready, not Ready: b: KubeletNotReady container runtime network not ready",
		},
		"with virtual nodes": {
			criteria{nodes: 2},
			snapshot{nodes: []*corev1.Node{up, other, gone}},
			`{"api":true,"nodes":{"ready":1,"total":1,"want":2},"done":false}`,
			"1 of 2 nodes are Ready, 1 have not registered",
		},
		"not registered": {
			criteria{nodes: 2},
			snapshot{nodes: []*corev1.Node{up}},
			`{"api":true,"nodes":{"ready":1,"total":1,"want":2},"done":false}`,
			"1 of 2 nodes are Ready, 1 have not registered",
		},
		"long list": {
			criteria{nodes: 7},
			snapshot{nodes: many},
			`{"api":true,"nodes":{"ready":0,"total":7,"want":7},"notReady":["h-0: has not reported its state yet","h-1: has not reported its state ` +
				`yet","h-2: has not reported its state yet","h-3: has not reported its state yet","h-4: has not reported its state yet","and 2 more"],"done":false}`,
			"0 of 7 nodes are Ready, not Ready: h-0: has not reported its state yet; h-1: has not reported its state yet; h-2: has not reported its " +
				"state yet; h-3: has not reported its state yet; h-4: has not reported its state yet; and 2 more",
		},
		"addons missing": {
			criteria{nodes: 1, addons: true},
			snapshot{nodes: []*corev1.Node{up}, deployments: []*appsv1.Deployment{deployment(coreDNS, 2), deployment(metricsServer, 1), deployment("other", 2)}},
			`{"api":true,"nodes":{"ready":1,"total":1,"want":1},"addons":{"coredns":true,"metrics-api":false,"metrics-server":false},"done":false}`,
			"1 of 1 nodes are Ready, metrics-server is not available, metrics-api is not available",
		},
		"complete": {
			criteria{nodes: 1, addons: true},
			snapshot{
				nodes: []*corev1.Node{up}, deployments: []*appsv1.Deployment{deployment(coreDNS, 2), deployment(metricsServer, 2)},
				services: []*apiregistrationv1.APIService{metrics},
			},
			`{"api":true,"nodes":{"ready":1,"total":1,"want":1},"addons":{"coredns":true,"metrics-api":true,"metrics-server":true},"done":true}`,
			"1 of 1 nodes are Ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := evaluate(test.want, test.seen)
			line, err := json.Marshal(state)
			if err != nil || string(line) != test.line {
				t.Errorf("line %s, error %v\nwant %s", line, err, test.line)
			}
			if got := state.sentence(); got != test.text {
				t.Errorf("sentence %q\nwant     %q", got, test.text)
			}
		})
	}
}

func TestSentenceWithoutAPI(t *testing.T) {
	if got := (State{}).sentence(); got != "the API server does not answer" {
		t.Error(got)
	}
}
