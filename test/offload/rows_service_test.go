// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/fields"
)

const services = `
apiVersion: v1
kind: Service
metadata: {name: whole, labels: {a: b}, annotations: {c: d}}
spec:
  type: LoadBalancer
  selector: {app: x}
  ports:
  - {name: web, port: 80, targetPort: 8080, appProtocol: http}
  - {name: dns, port: 53, protocol: UDP, targetPort: named}
  externalIPs: [192.0.2.7]
  loadBalancerIP: 192.0.2.8
  loadBalancerClass: example.org/none
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [192.0.2.0/24]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  healthCheckNodePort: 30066
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  publishNotReadyAddresses: true
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: example.org}
---
apiVersion: v1
kind: Service
metadata: {name: nodes}
spec: {type: NodePort, selector: {app: x}, ports: [{port: 80, nodePort: 30067}]}
---
apiVersion: v1
kind: Service
metadata: {name: same-nodes, annotations: {liqo.io/force-remote-node-port: "true"}}
spec: {type: NodePort, selector: {app: x}, ports: [{port: 80, nodePort: 30068}]}
`

func serviceRow(t *testing.T) {
	s := offload(t)
	s.apply(t, services)
	whole := s.wantRemote(t, serviceKind, "whole", `
metadata: {labels: {a: b, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}, annotations: {c: d}}
spec:
  type: LoadBalancer
  selector: {app: x}
  ports:
  - {name: web, port: 80, targetPort: 8080, protocol: TCP, appProtocol: http, nodePort: null}
  - {name: dns, port: 53, protocol: UDP, targetPort: named, nodePort: null}
  externalIPs: null
  loadBalancerIP: null
  loadBalancerClass: example.org/none
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [192.0.2.0/24]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  healthCheckNodePort: '*'
  ipFamilyPolicy: SingleStack
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  publishNotReadyAddresses: true
`)
	if fmt.Sprint(fields.At(whole.Object, "spec.healthCheckNodePort")) == "30066" {
		t.Error("the port of the health check is the same as in rome")
	}
	s.wantRemote(t, serviceKind, "headless", "{spec: {type: ClusterIP, clusterIP: None, selector: {app: x}}}")
	s.wantRemote(t, serviceKind, "elsewhere", "{spec: {type: ExternalName, externalName: example.org, clusterIP: null, ports: null}}")
	nodes := s.wantRemote(t, serviceKind, "nodes", "{spec: {type: NodePort, ports: [{port: 80, nodePort: '*'}]}}")
	if fmt.Sprint(fields.At(nodes.Object, "spec.ports.0.nodePort")) == "30067" {
		t.Error("the node port is the same as in rome, without a request for that")
	}
	s.wantRemote(t, serviceKind, "same-nodes", "{spec: {type: NodePort, ports: [{port: 80, nodePort: 30068}]}}")
	if found := object(t, milan, serviceKind, s.remote, "kubernetes"); found != nil {
		t.Error("Service kubernetes is in the remote namespace")
	}

	s.kubectl(t, "patch", "service", "headless", "--type=merge", "-p", `{"spec":{"selector":{"app":"other"},"ports":[{"port":81}]}}`)
	s.wantRemote(t, serviceKind, "headless", "{spec: {selector: {app: other}, ports: [{port: 81}]}}")
	s.remoteKubectl(t, "patch", "service", "headless", "--type=merge", "-p", `{"spec":{"selector":{"app":"edited"}}}`)
	s.wantRemote(t, serviceKind, "headless", "{spec: {selector: {app: other}}}")

	// A change that Kubernetes accepts only for a new object.
	s.kubectl(t, "delete", "service", "headless")
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: headless}, spec: {selector: {app: x}, ports: [{port: 80}]}}")
	s.wantRemote(t, serviceKind, "headless", "{spec: {clusterIP: '~[0-9.]+', selector: {app: x}}}")

	o := reflectedObject{
		kind: serviceKind, name: "lifecycle",
		manifest: "{apiVersion: v1, kind: Service, metadata: {name: lifecycle, " + meta + "}, spec: {selector: {app: x}, ports: [{port: 80}]}}",
	}
	lifecycle(t, s, o)
	o.name, o.manifest = "unmanaged", strings.Replace(o.manifest, "lifecycle", "unmanaged", 1)
	unmanaged(t, s, o)
}

// endpointSlices have endpoints without pods: addresses of the pod network are enough.
const endpointSlices = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-whole, labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: tests, a: b}, annotations: {c: d}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP, appProtocol: http}]
endpoints:
- addresses: [LOCAL]
  conditions: {ready: true, serving: true, terminating: false}
  hostname: first
  nodeName: ROMENODES-worker
  zone: south
  hints: {forZones: [{name: south}], forNodes: [{name: ROMENODES-worker}]}
  targetRef: {kind: Pod, namespace: somewhere, name: pod, uid: 00000000-0000-0000-0000-000000000000}
- addresses: [10.200.77.9]
  conditions: {ready: true}
  nodeName: liqo-milan
- addresses: [UNREADY]
  conditions: {ready: false, serving: true, terminating: true}
  nodeName: ROMENODES-control-plane
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-remote, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.200.77.10], nodeName: liqo-milan}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-no-service}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [LOCAL], nodeName: ROMENODES-worker}
`

func endpointSliceRow(t *testing.T) {
	s := offload(t)
	local := []string{"10.200.77.7", "10.200.77.8"}
	seen := []any{seenFromMilan(t, local[0]), seenFromMilan(t, local[1])}
	s.apply(t, strings.NewReplacer("LOCAL", local[0], "UNREADY", local[1], "ROMENODES", rome.NodePrefix).Replace(endpointSlices))
	s.wantRemote(t, sliceKind, "web-whole", fmt.Sprintf(`
metadata:
  labels:
    kubernetes.io/service-name: web
    endpointslice.kubernetes.io/managed-by: endpointslice.reflection.liqo.io
    liqo.io/managed-by: shadowendpointslice
    virtualkubelet.liqo.io/origin: ROMEID
    virtualkubelet.liqo.io/destination: MILANID
    a: b
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP, appProtocol: http}]
endpoints:
- addresses: ["%v"]
  conditions: {ready: true, serving: null, terminating: null}
  hostname: first
  nodeName: rome
  zone: south
  hints: {forZones: [{name: south}], forNodes: [{name: rome}]}
  targetRef: {kind: RemotePod, namespace: somewhere, name: pod, uid: 00000000-0000-0000-0000-000000000000}
- addresses: ["%v"]
  conditions: {ready: false, serving: true, terminating: true}
  nodeName: rome
`, seen...))
	s.wantRemote(t, "virtualkubelet.liqo.io/v1alpha1/ShadowEndpointSlice", "web-whole", "{metadata: {annotations: {c: d}}}")

	// The reflection restores the EndpointSlice of the provider as well.
	s.remoteKubectl(t, "patch", "endpointslice", "web-whole", "--type=json", "-p", `[{"op":"replace","path":"/endpoints/0/addresses/0","value":"192.0.2.1"}]`)
	s.wantRemote(t, sliceKind, "web-whole", fmt.Sprintf(`{endpoints: [{addresses: ["%v"]}, {}]}`, seen[0]))
	s.remoteKubectl(t, "delete", "endpointslice", "web-whole")
	s.wantRemote(t, sliceKind, "web-whole", fmt.Sprintf(`{endpoints: [{addresses: ["%v"]}, {}]}`, seen[0]))
	s.kubectl(t, "patch", "endpointslice", "web-whole", "--type=json", "-p", `[{"op":"replace","path":"/endpoints/0/conditions/ready","value":false}]`)
	s.wantRemote(t, sliceKind, "web-whole", `{endpoints: [{conditions: {ready: false}}, {}]}`)

	s.kubectl(t, "annotate", "service", "web", "liqo.io/skip-reflection=")
	wantGone(t, milan, sliceKind, s.remote, "web-whole")
	s.kubectl(t, "annotate", "service", "web", "liqo.io/skip-reflection-")
	s.wantRemote(t, sliceKind, "web-whole", "{}")
	for _, name := range []string{"web-remote", "web-no-service"} {
		if found := s.inMilan(t, sliceKind, name); found != nil {
			t.Errorf("%s was reflected: %s", name, inJSON(found.Object["endpoints"]))
		}
	}
	lifecycle(t, s, reflectedObject{
		kind: sliceKind, name: "web-lifecycle", shadow: "virtualkubelet.liqo.io/v1alpha1/ShadowEndpointSlice",
		manifest: `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: web-lifecycle, labels: {version: ` +
			`"%s", kubernetes.io/service-name: web}, annotations: {note: "%s"}}, endpoints: [{addresses: [10.200.77.7]}], ports: [{port: 1}]}`,
	})
	wantGone(t, milan, sliceKind, s.remote, "web-lifecycle")
}

// serviceAccountRow runs a pod with a ServiceAccount in milan: the pod authenticates at the API server of rome with its own account.
func serviceAccountRow(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
	s.kubectl(t, "create", "serviceaccount", "robot")
	s.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: caller}
spec:
  serviceAccountName: robot
  terminationGracePeriodSeconds: 1
  volumes:
  - name: vault
    projected: {sources: [{serviceAccountToken: {path: token, audience: vault, expirationSeconds: 900}}]}
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    env: [{name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}]
    volumeMounts: [{name: vault, mountPath: /vault}]
`)
	s.running(t, "caller")
	pod := s.local(t, podKind, "caller")
	secret := s.wantRemote(t, secretKind, "caller-token", fmt.Sprintf(`
metadata:
  labels:
    virtualkubelet.liqo.io/origin: ROMEID
    virtualkubelet.liqo.io/destination: MILANID
    virtualkubelet.liqo.io/service-account-for-pod-name: caller
    virtualkubelet.liqo.io/service-account-name: robot
  annotations:
    virtualkubelet.liqo.io/service-account-for-pod-uid: %s
    virtualkubelet.liqo.io/service-account-expiration: '~20.*Z'
type: Opaque
data: {}
`, pod.GetUID()))
	data, _ := secret.Object["data"].(map[string]any)
	if len(data) != 3 {
		t.Errorf("the Secret of tokens has %d keys, want two tokens and the namespace", len(data))
	}
	exec := func(script string) execution.Result {
		return rome.TryKubectl("", "-n", s.name, "exec", "caller", "--", "sh", "-c", script)
	}
	const folder = "/var/run/secrets/kubernetes.io/serviceaccount"
	get := func(path string) execution.Result {
		return exec(`curl -sS --max-time 5 --cacert ` + folder + `/ca.crt -H "Authorization: Bearer $(cat ` +
			folder + `/token)" https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT` + path)
	}
	if result := exec("echo $ACCOUNT $KUBERNETES_SERVICE_HOST; cat " + folder +
		"/namespace"); strings.Join(strings.Fields(result.Out), " ") != "robot kubernetes.default "+s.name {
		t.Errorf("the environment of the pod: %s", result)
	}
	path := "/api/v1/namespaces/" + s.name + "/pods/caller"
	account := "system:serviceaccount:" + s.name + ":robot"
	env.Eventually(t, env.Hang, "the API server of rome authenticates the pod", func() (string, bool) {
		result := get(path)
		return result.String(), strings.Contains(result.Out, `User \"`+account+`\" cannot get resource`)
	})
	s.kubectl(t, "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount="+s.name+":robot")
	env.Eventually(t, env.Hang, "the pod reads itself", func() (string, bool) {
		result := get(path)
		return result.String(), strings.Contains(result.Out, string(pod.GetUID()))
	})
	claims := exec("cut -d. -f2 /vault/token | tr '_-' '/+' | base64 -d 2>/dev/null").Out
	for _, want := range []string{`"aud":["vault"]`, string(pod.GetUID()), account} {
		if !strings.Contains(claims, want) {
			t.Errorf("the token of the volume has the claims %s, want %s in them", claims, want)
		}
	}
	if result := milan.TryKubectl("", "-n", s.remote, "get", "serviceaccount", "robot"); result.Code == 0 {
		t.Error("the ServiceAccount was reflected")
	}
	s.kubectl(t, "delete", "pod", "caller")
	wantGone(t, milan, secretKind, s.remote, "caller-token")
}
