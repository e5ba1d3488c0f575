// SPDX-License-Identifier: Apache-2.0

// Package plan decides what users and faults do to a busy installation, from random numbers and a model of the installation: the same
// numbers give the same actions. What an action takes, and whether it has taken effect, does not change the plan.
//
// It knows names, and neither a cluster nor a clock. Proof: plan_test.go.
package plan

import (
	"maps"
	"slices"
	"strings"
)

// Consumer is the cluster whose namespaces are offloaded.
const Consumer = "rome"

// State is a model of the installation: what the actions so far have asked for.
type State struct {
	Namespaces map[string]Namespace // those that exist
	Providers  map[string]Provider  // those that exist as clusters
	Fault      Fault
	Actions    int // so far; it makes names unique
	Most       int // pods that users ask for at most; 0: not bounded
}

// Namespace is one of the consumer's.
type Namespace struct {
	Offloaded bool
	Selector  string         // of the offloading; empty: all providers
	Objects   map[string]int // by KIND/NAME: replicas, completions, or the version of the content
}

// Provider is a cluster that the consumer may use.
type Provider struct {
	Peered, Cordoned, Labelled bool
}

// Fault is one that lasts. Without End there is none.
type Fault struct {
	End  Action
	Left int // actions until it ends
}

// Pods is how many pods the objects of the namespace ask for.
func (n Namespace) Pods() (sum int) {
	for object, value := range n.Objects {
		switch kind, _, _ := strings.Cut(object, "/"); kind {
		case "deployment", "statefulset", "job":
			sum += value
		}
	}
	return sum
}

// Pods is how many pods all objects ask for.
func (s State) Pods() (sum int) {
	for _, n := range s.Namespaces {
		sum += n.Pods()
	}
	return sum
}

// selectors are what users choose providers by. The label pool is one that users set on virtual nodes.
var selectors = []string{"", "topology.liqo.io/region=north", "topology.liqo.io/region=south", "pool=extra"}

// Regions are the labels of the providers' own, by which selectors choose.
var Regions = map[string]string{"milan": "north", "turin": "north", "genoa": "south"}

// Chosen are the providers that have a remote namespace of the namespace.
func (s State) Chosen(namespace string) (names []string) {
	n := s.Namespaces[namespace]
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		p := s.Providers[name]
		matches := n.Selector == "" || n.Selector == "topology.liqo.io/region="+Regions[name] || n.Selector == "pool=extra" && p.Labelled
		if n.Offloaded && p.Peered && matches {
			names = append(names, name)
		}
	}
	return names
}

// Empty is the installation before anything is peered.
func Empty() State {
	s := State{Namespaces: map[string]Namespace{}, Providers: map[string]Provider{}}
	for name := range Regions {
		s.Providers[name] = Provider{}
	}
	return s
}

// Few and Many are pods in each namespace.
const (
	Few  = 10
	Many = 15
)

// spare is how many pods users ask for beyond those at the start.
const spare = 40

// Busy is the installation at the start of the random actions, and again at their end: namespaces with the same number of pods each, most of them
// offloaded to all providers and the others to some.
func Busy(namespaces, each int) State {
	s := Empty()
	s.Most = namespaces*each + spare
	for name := range s.Providers {
		s.Providers[name] = Provider{Peered: true}
	}
	for i := range namespaces {
		n := Namespace{Offloaded: true, Objects: map[string]int{
			"deployment/web": each - 7, "deployment/api": 4, "statefulset/db": 3,
			"service/web": 1, "service/db": 1, "configmap/settings": 1, "configmap/rules": 1,
		}}
		switch i % 5 {
		case 3:
			n.Selector = selectors[1]
		case 4:
			n.Selector = selectors[2]
		}
		s.Namespaces["soak-"+string(rune('a'+i))] = n
	}
	return s
}

// clone copies what After changes.
func (s State) clone() State {
	s.Namespaces, s.Providers = maps.Clone(s.Namespaces), maps.Clone(s.Providers)
	return s
}
