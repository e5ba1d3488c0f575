// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// APIServer is how remote pods reach the API server of this cluster. With the zero value they do not, and get no tokens.
type APIServer struct {
	Enabled bool
	// Host and Port, both or none, are its address outside the network between the clusters.
	Host, Port string
	// Address is the translated address of the Service kubernetes, ServicePort its port. Pods use them if there is no Host.
	Address     netip.Addr
	ServicePort string
	// Home is the address of the Service kubernetes in this cluster; invalid if it is not known.
	Home netip.Addr
}

const (
	// apiServerName is the name under which pods reach the API server of their own cluster. The longer ones start with it.
	apiServerName = "kubernetes.default"
	// apiServerService is the Service of the API server in the namespace default, apiServerPort the port that every cluster gives it.
	apiServerService, apiServerPort = "kubernetes", "443"
	// nowhere is an address to which no connection is made: it fails at once.
	nowhere = "255.255.255.255"
)

// ErrNoAPIServer means that it is not known yet under which address remote pods reach our API server.
var ErrNoAPIServer = errors.New("it is not known yet under which address the remote cluster reaches this API server")

// inject gives the containers the address of the API server. Whatever name or variable a program uses, it does not reach the API server of the peer, which must
// not receive the tokens of this cluster.
func (a APIServer) inject(m project.NamespaceMapping, local *corev1.Pod, spec *corev1.PodSpec) error {
	host, port, address := a.Host, a.Port, nowhere
	joined := host == "" || port == ""
	if joined {
		if !a.Address.IsValid() || a.ServicePort == "" {
			return ErrNoAPIServer
		}
		port, address = a.ServicePort, a.Address.String()
	} else if parsed, err := netip.ParseAddr(host); err == nil {
		address = parsed.String()
	}
	names := a.alias(m, local.Namespace, address, spec)
	if joined {
		host = address // the certificate does not have it, but the user has given all names to other hosts
		if len(names) > 0 {
			host = names[0]
		}
	}
	variables := apiServerVariables(host, port)
	eachContainer(spec, func(container *corev1.Container) {
		container.Env = slices.Concat(variables, overrides(variables, container.EnvFrom), container.Env)
	})
	return nil
}

// alias leads the names of the API server to its address, and returns those that it leads there. A name for which
// the pod has an entry of its own stays with that.
func (a APIServer) alias(m project.NamespaceMapping, namespace, address string, spec *corev1.PodSpec) (names []string) {
	taken := func(name string) bool {
		return slices.ContainsFunc(spec.HostAliases, func(alias corev1.HostAlias) bool { return slices.Contains(alias.Hostnames, name) })
	}
	all := []string{apiServerName, apiServerName + ".svc", apiServerName + ".svc." + m.ServiceDomain(), apiServerName + ".svc." + project.DefaultDomain}
	if namespace == corev1.NamespaceDefault {
		all = append(all, apiServerService)
	}
	for _, name := range all {
		if !taken(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && !taken(apiServerService) {
		names = []string{apiServerService} // the certificate has this name as well
	}
	for i := range spec.HostAliases {
		if own, err := netip.ParseAddr(spec.HostAliases[i].IP); err == nil && own == a.Home {
			spec.HostAliases[i].IP = address // in the peer, it may be that of the peer's API server
		}
	}
	if len(names) > 0 {
		spec.HostAliases = withAlias(spec.HostAliases, address, names...)
	}
	return names
}

func withAlias(aliases []corev1.HostAlias, address string, names ...string) []corev1.HostAlias {
	for i := range aliases {
		if aliases[i].IP == address { // one entry for an address, as clients that apply pods expect
			aliases[i].Hostnames = append(aliases[i].Hostnames, names...)
			return aliases
		}
	}
	return append(aliases, corev1.HostAlias{IP: address, Hostnames: names})
}

// apiServerVariables returns the variables that a kubelet sets for the API server of its cluster, also those of the peer's kubelet if the port differs.
func apiServerVariables(host, port string) []corev1.EnvVar {
	url := "tcp://" + net.JoinHostPort(host, port)
	all := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		{Name: "KUBERNETES_PORT", Value: url},
	}
	for _, of := range slices.Compact([]string{port, apiServerPort}) {
		all = append(all,
			corev1.EnvVar{Name: "KUBERNETES_PORT_" + of + "_TCP", Value: url},
			corev1.EnvVar{Name: "KUBERNETES_PORT_" + of + "_TCP_PROTO", Value: "tcp"},
			corev1.EnvVar{Name: "KUBERNETES_PORT_" + of + "_TCP_ADDR", Value: host},
			corev1.EnvVar{Name: "KUBERNETES_PORT_" + of + "_TCP_PORT", Value: port})
	}
	return all
}

// overrides returns, for variables at the start of a container's own ones, the values that its ConfigMaps and Secrets have under these names. At home, these
// replace the variables of Services, and here they would be replaced by ours. Of two variables with one name the last one counts, and kubelets leave out an
// optional one whose key does not exist.
func overrides(variables []corev1.EnvVar, sources []corev1.EnvFromSource) (all []corev1.EnvVar) {
	optional := true
	for _, source := range sources {
		for _, variable := range variables {
			key, ok := strings.CutPrefix(variable.Name, source.Prefix)
			if !ok || key == "" {
				continue
			}
			from := &corev1.EnvVarSource{}
			switch {
			case source.ConfigMapRef != nil:
				from.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: source.ConfigMapRef.LocalObjectReference, Key: key, Optional: &optional}
			case source.SecretRef != nil:
				from.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: source.SecretRef.LocalObjectReference, Key: key, Optional: &optional}
			default:
				continue
			}
			all = append(all, corev1.EnvVar{Name: variable.Name, ValueFrom: from})
		}
	}
	return all
}
