// SPDX-License-Identifier: Apache-2.0

// Package clusters decides how to install Liqo in a cluster: [Decide] turns facts about the cluster and overrides of the user
// into a plan for the chart's values. What differs from type to type is a row, one file each. It must not read a cluster;
// package facts does. Its proof are decide_test.go, and for each type a test with the objects of a recorded cluster.
package clusters

import (
	"fmt"
	"strings"
)

// Name of a type of cluster, and of a sub-command of install.
type Name string

// Auto recognises the type.
const Auto Name = ""

// Type is everything that differs between types of clusters.
type Type struct {
	Name Name
	// Refused is why this version does not install there; empty if it does.
	Refused string
	// Flags of the sub-command.
	Flags []Flag
	// Recognised reports whether a cluster is of this type; nil leaves that to the user.
	Recognised func(Facts) bool
	// Reads are the objects that state its settings.
	Reads []Object
	// Networks of pods and Services, as its settings state them; empty if they do not. nil takes the arguments of the controller manager.
	Networks func(Facts) (pods, services string)
	// Complete fills what neither the user nor the cluster has set. nil leaves it to the chart.
	Complete func(Facts, Overrides, *Plan)
	// LocalAPIServer: if the kubeconfig works on one machine only, the chart publishes the address of a node.
	LocalAPIServer bool
	// AnyAPIServer: the address of the user may differ from the kubeconfig's.
	AnyAPIServer bool
}

// Flag of a sub-command, with the override that it sets.
type Flag struct {
	Name, Usage string
	Set         func(o *Overrides, value string)
}

// Object is the identity of an object of the cluster.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// All types, those first that others contain: kind is made with kubeadm.
var All = []Type{k3s, kind, kubeadm, aks, eks, gke, openshift}

// Generic is the row of clusters that no type recognises.
var Generic = Type{Name: Auto, Flags: addresses}

// addresses are the flags for what a cluster may not publish.
var addresses = []Flag{
	{"api-server-url", "Address of the API server for other clusters (default: that of the kubeconfig)", func(o *Overrides, value string) { o.APIServer = value }},
	{"pod-cidr", "Network of the pods (default: detected)", func(o *Overrides, value string) { o.PodCIDR = value }},
	{"service-cidr", "Network of the services (default: detected)", func(o *Overrides, value string) { o.ServiceCIDR = value }},
}

// find returns the row with the name, or without a name the first that recognises the cluster.
func find(f Facts, name Name) Type {
	for _, row := range All {
		if name == row.Name || name == Auto && row.Recognised != nil && row.Recognised(f) {
			return row
		}
	}
	return Generic
}

// untested is the refusal of documented types for which this version knows no settings.
func untested(name Name) string {
	return fmt.Sprintf("this version has no installation for %s yet; "+
		"try `install --api-server-url URL --pod-cidr CIDR --service-cidr CIDR`, which is untested there", name)
}

func (t Type) networks(f Facts) (pods, services string) {
	if t.Networks != nil {
		return t.Networks(f)
	}
	return arguments(f)
}

// arguments returns the networks that the command line of the controller manager states.
func arguments(f Facts) (pods, services string) {
	for _, argument := range f.ControllerManager {
		if value, ok := strings.CutPrefix(argument, "--cluster-cidr="); ok && pods == "" {
			pods = value
		}
		if value, ok := strings.CutPrefix(argument, "--service-cluster-ip-range="); ok && services == "" {
			services = value
		}
	}
	return pods, services
}
