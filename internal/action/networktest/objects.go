// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/matrix"
)

const (
	// namespacePrefix is the prefix of the names of test namespaces.
	namespacePrefix = "liqo-test-network-"
	// appName labels the objects of a test. They are not part of an installation, so they have no other label of ours.
	appName = "network-test"
	// networkPod, hostPod and pairPod are the kinds of pods, and the prefixes of their names: with an address of its own, in the network of the host, and a
	// second one
	// with its own address on the same node.
	networkPod, hostPod, pairPod = "pod", "node", "pair"

	farService = "far"
)

func (s *end) start(ctx context.Context, c client.WithWatch, key string, pair bool) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{
		labels.AppName: appName,
		// Half of the pods use the host network.
		"pod-security.kubernetes.io/enforce": "privileged",
	}}}
	if err := c.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", s.namespace, err)
	}
	for i := range s.pullSecrets {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.pullSecrets[i].Name, Labels: map[string]string{labels.AppName: appName}},
			Type:       s.pullSecrets[i].Type, Data: s.pullSecrets[i].Data,
		}
		if err := c.Create(ctx, secret); err != nil {
			return fmt.Errorf("create Secret %s/%s with the credentials of the registry: %w", secret.Namespace, secret.Name, err)
		}
	}
	// Pods are refused until the controller manager has created their service account.
	err := await.Follow(ctx, c, &corev1.ServiceAccountList{}, func(all []corev1.ServiceAccount) (bool, error) { return len(all) > 0, nil },
		client.InNamespace(s.namespace))
	if err != nil {
		return fmt.Errorf("wait for the service account of namespace %s: %w", s.namespace, err)
	}
	for i, n := range s.nodes {
		kinds := []string{networkPod, hostPod}
		if pair && i == 0 {
			kinds = append(kinds, pairPod)
		}
		for _, kind := range kinds {
			p := s.pod(n, kind, key)
			if err := c.Create(ctx, p); err != nil {
				return fmt.Errorf("create pod %s on node %s: %w", p.Name, n.name, err)
			}
			s.wanted++
		}
	}
	return nil
}

// pod is the server on one node.
func (s *end) pod(n node, kind, key string) *corev1.Pod {
	port := intstr.FromInt32(matrix.Port)
	yes, no, user := true, false, int64(65532)
	at := slices.IndexFunc(s.nodes, func(one node) bool { return one.name == n.name })
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			// Names differ between the clusters, so the name in an answer identifies the cluster.
			Namespace: s.namespace, Name: fmt.Sprintf("%s-%d-%s", kind, at, s.suffix()), Labels: map[string]string{labels.AppName: appName},
		},
		Spec: corev1.PodSpec{
			// Bypass the scheduler: the pod must run on this node, whatever its state.
			NodeName: n.name, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ImagePullSecrets: s.pullReferences(),
			HostNetwork:      kind == hostPod, RestartPolicy: corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: new(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: appName, Image: s.image, ImagePullPolicy: s.pullPolicy,
				Args: []string{"network-test-server", "--address=:" + port.String()},
				Env: []corev1.EnvVar{
					{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "NETWORK_TEST_KEY", Value: key},
				},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: matrix.HealthPath, Port: port}}, PeriodSeconds: 1},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// pullReferences names the copies of the pull Secrets.
func (s *end) pullReferences() (all []corev1.LocalObjectReference) {
	for i := range s.pullSecrets {
		all = append(all, corev1.LocalObjectReference{Name: s.pullSecrets[i].Name})
	}
	return all
}

// suffix of the names of pods in this cluster.
func (s *end) suffix() string {
	if s.remote {
		return "remote"
	}
	return "local"
}

// awaitPods waits until all pods are ready, and records their addresses.
func (s *end) awaitPods(ctx context.Context, c client.WithWatch) error {
	var missing []string
	err := await.Follow(ctx, c, &corev1.PodList{}, func(all []corev1.Pod) (bool, error) {
		s.pods, missing = nil, nil
		for i := range all {
			one := &all[i]
			address, err := netip.ParseAddr(one.Status.PodIP)
			if err != nil || !isReady(one) {
				missing = append(missing, problem(one))
				continue
			}
			s.pods = append(s.pods, pod{name: one.Name, node: one.Spec.NodeName, kind: kindOf(one.Name), address: address})
		}
		return len(s.pods) == s.wanted, nil
	}, client.InNamespace(s.namespace), client.MatchingLabels{labels.AppName: appName})
	if err != nil {
		slices.Sort(missing)
		return fmt.Errorf("wait until the pods in namespace %s are ready: %w; %s", s.namespace, err, strings.Join(missing, "; "))
	}
	slices.SortFunc(s.pods, func(a, b pod) int { return strings.Compare(a.name, b.name) })
	return nil
}

func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// problem is the reason that a pod reports for not being ready.
func problem(p *corev1.Pod) string {
	text := fmt.Sprintf("pod %s on node %s is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
	for _, status := range p.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			text += ": " + strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")
		}
	}
	if p.Status.Message != "" {
		text += ": " + p.Status.Message
	}
	return text
}

// publish creates a Service whose only endpoint is the first pod of the other cluster, under its address for this cluster. One
// endpoint only, because each datagram of an exchange must reach the same pod.
func (s *end) publish(ctx context.Context, c client.Client, other *end) error {
	seen, ok := ipam.Swap(other.first().address, s.view.remotePods, s.view.remotePodsSeen)
	if !ok {
		return fmt.Errorf("pod %s of %s has the address %s, which is not in the network that the clusters agreed on, %s",
			other.first().name, other.name, other.first().address, s.view.remotePods)
	}
	if err := c.Create(ctx, s.slice(seen)); err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", farService, err)
	}
	object := s.service()
	if err := c.Create(ctx, object); err != nil {
		return fmt.Errorf("create Service %s: %w", farService, err)
	}
	address, err := netip.ParseAddr(object.Spec.ClusterIP)
	if err != nil {
		return fmt.Errorf("address of Service %s: %w", farService, err)
	}
	s.remoteService = service{address: address, nodePorts: map[string]int{}}
	for _, port := range object.Spec.Ports {
		s.remoteService.nodePorts[string(port.Protocol)] = int(port.NodePort)
	}
	return nil
}

func (s *end) service() *corev1.Service {
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: farService, Labels: map[string]string{labels.AppName: appName}}}
	object.Spec.Type = corev1.ServiceTypeNodePort
	object.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		object.Spec.Ports = append(object.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: matrix.Port, TargetPort: intstr.FromInt32(matrix.Port),
		})
	}
	return object
}

func (s *end) slice(address netip.Addr) *discoveryv1.EndpointSlice {
	object := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: farService, Labels: map[string]string{
			labels.AppName: appName, discoveryv1.LabelServiceName: farService, discoveryv1.LabelManagedBy: appName,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		object.Ports = append(object.Ports, discoveryv1.EndpointPort{
			Name: new(strings.ToLower(string(protocol))), Protocol: new(protocol),
			Port: new(int32(matrix.Port)),
		})
	}
	return object
}

// remove deletes the namespace, if it was created.
func remove(ctx context.Context, c client.Client, s *end) error {
	if s.namespace == "" {
		return nil
	}
	err := c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove namespace %s from %s: %w; try `kubectl delete namespace %[1]s`", s.namespace, s.name, err)
	}
	return nil
}
