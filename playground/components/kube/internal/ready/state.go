// SPDX-License-Identifier: Apache-2.0

package ready

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Names of the addons in State.
const (
	coreDNS       = "coredns"
	metricsServer = "metrics-server"
	metricsAPI    = "metrics-api"
)

// named is how many of the nodes that are not Ready a State names.
const named = 5

// State is printed as one line of JSON per change.
type State struct {
	API   bool  `json:"api"`
	Nodes Count `json:"nodes"`
	// Addons reports which addons work; empty unless requested.
	Addons map[string]bool `json:"addons,omitempty"`
	// NotReady gives the reasons of the first nodes that are not Ready: "rome-worker: KubeletNotReady container runtime network not ready".
	NotReady []string `json:"notReady,omitempty"`
	Done     bool     `json:"done"`
}

// Count is about Node objects, except virtual ones.
type Count struct {
	Ready int `json:"ready"`
	Total int `json:"total"`
	Want  int `json:"want"`
}

// snapshot holds the objects of the API that evaluate needs.
type snapshot struct {
	nodes       []*corev1.Node
	deployments []*appsv1.Deployment            // of kube-system
	services    []*apiregistrationv1.APIService // metrics only
}

// evaluate returns the state of a snapshot. It is done when at least the wanted number of
// nodes is Ready and, if addons are requested, every addon works.
func evaluate(want criteria, s snapshot) State {
	machines := slices.DeleteFunc(slices.Clone(s.nodes), virtual)
	state := State{API: true, Nodes: Count{Total: len(machines), Want: want.nodes}}
	for _, node := range machines {
		ready, why := readiness(node)
		if ready {
			state.Nodes.Ready++
			continue
		}
		state.NotReady = append(state.NotReady, node.Name+": "+why)
	}
	slices.Sort(state.NotReady)
	if more := len(state.NotReady) - named; more > 0 {
		state.NotReady = append(state.NotReady[:named:named], fmt.Sprintf("and %d more", more))
	}
	state.Done = state.Nodes.Ready >= want.nodes
	if want.addons {
		state.Addons = map[string]bool{coreDNS: false, metricsServer: false, metricsAPI: slices.ContainsFunc(s.services, apiAvailable)}
		for _, deployment := range s.deployments {
			if _, asked := state.Addons[deployment.Name]; asked {
				state.Addons[deployment.Name] = deploymentAvailable(deployment)
			}
		}
		for _, works := range state.Addons {
			state.Done = state.Done && works
		}
	}
	return state
}

// virtual reports whether a node is another cluster, which no playground has started.
func virtual(node *corev1.Node) bool { return node.Labels["liqo.io/type"] == "virtual-node" }

func readiness(node *corev1.Node) (ready bool, why string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			text := strings.TrimSpace(condition.Reason + " " + condition.Message)
			if runes := []rune(text); len(runes) > 200 {
				text = string(runes[:200]) + "…"
			}
			return condition.Status == corev1.ConditionTrue, text
		}
	}
	return false, "has not reported its state yet"
}

// deploymentAvailable is false while the controller has not observed the newest spec.
func deploymentAvailable(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
}

func apiAvailable(s *apiregistrationv1.APIService) bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
		return c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue
	})
}

// sentence describes for a person what is still missing.
func (s State) sentence() string {
	if !s.API {
		return "the API server does not answer"
	}
	parts := []string{fmt.Sprintf("%d of %d nodes are Ready", s.Nodes.Ready, s.Nodes.Want)}
	if missing := s.Nodes.Want - s.Nodes.Total; missing > 0 {
		parts = append(parts, fmt.Sprintf("%d have not registered", missing))
	}
	if len(s.NotReady) > 0 {
		parts = append(parts, "not Ready: "+strings.Join(s.NotReady, "; "))
	}
	for _, addon := range []string{coreDNS, metricsServer, metricsAPI} {
		if works, asked := s.Addons[addon]; asked && !works {
			parts = append(parts, addon+" is not available")
		}
	}
	return strings.Join(parts, ", ")
}
