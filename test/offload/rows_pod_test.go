// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
	"liqo.io/liqo/test/env/networks"
)

// wholePod has every field that controls where and how a pod runs. It sets nodeName itself, so that it can name a scheduler that does not
// exist.
const wholePod = `
apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {app: x, tier: back}, annotations: {note: one}}
spec:
  nodeName: liqo-milan
  schedulerName: missing
  nodeSelector: {liqo.io/type: virtual-node}
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: Exists}]}]}}
    podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: x}}}}]}
  priorityClassName: CLASS
  runtimeClassName: CLASS
  serviceAccountName: robot
  os: {name: linux}
  activeDeadlineSeconds: 3600
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
  enableServiceLinks: false
  hostAliases: [{ip: 192.0.2.9, hostnames: [nine]}]
  hostname: host
  subdomain: sub
  setHostnameAsFQDN: false
  imagePullSecrets: [{name: pull}]
  readinessGates: [{conditionType: example.org/gate}]
  restartPolicy: OnFailure
  securityContext: {fsGroup: 17, runAsUser: 0}
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: x}}}]
  tolerations: [{key: mine, operator: Exists, effect: NoSchedule}]
  volumes:
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: config}}
  - {name: root, configMap: {name: kube-root-ca.crt}}
  - {name: secret, secret: {secretName: secret}}
  - {name: podinfo, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  initContainers:
  - {name: first, image: "playground.local/tools:1", imagePullPolicy: Never, command: ["true"], env: [{name: A, value: one}]}
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]
    workingDir: /tmp
    ports: [{name: http, containerPort: 80}]
    env:
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: FROM_CONFIG, valueFrom: {configMapKeyRef: {name: config, key: k}}}
    envFrom: [{secretRef: {name: secret, optional: true}}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    lifecycle: {preStop: {exec: {command: ["true"]}}}
    securityContext: {allowPrivilegeEscalation: false}
    volumeMounts: [{name: empty, mountPath: /empty}, {name: config, mountPath: /config}, {name: root, mountPath: /root-ca}, {name: secret, mountPath: /secret}, {name: podinfo, mountPath: /podinfo}]
`

// wholeRemote is wholePod in milan.
const wholeRemote = `
metadata:
  labels: {app: x, tier: back, liqo.io/managed-by: shadowpod, liqo.io/shadowPod: null, virtualkubelet.liqo.io/origin: ROMEID, virtualkubelet.liqo.io/destination: MILANID}
  annotations: {note: one, kubectl.kubernetes.io/last-applied-configuration: null}
spec:
  nodeName: ~MILANNODES-.*
  schedulerName: default-scheduler
  nodeSelector: null
  affinity: null
  priority: 0
  priorityClassName: null
  preemptionPolicy: PreemptLowerPriority
  runtimeClassName: null
  overhead: null
  serviceAccountName: default
  os: {name: linux}
  automountServiceAccountToken: false
  readinessGates: null
  hostNetwork: null
  hostPID: null
  hostIPC: null
  activeDeadlineSeconds: 3600
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
  enableServiceLinks: false
  hostAliases: [{ip: 192.0.2.9, hostnames: [nine]}, {ip: '~[0-9.]+', hostnames: [kubernetes.default, kubernetes.default.svc, kubernetes.default.svc.cluster.local]}]
  hostname: host
  subdomain: sub
  setHostnameAsFQDN: false
  imagePullSecrets: [{name: pull}]
  restartPolicy: OnFailure
  securityContext: {fsGroup: 17, runAsUser: 0}
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 1
  topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: x}}}]
  volumes:
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: config}}
  - {name: root, configMap: {name: kube-root-ca.crt.ROMESHORT}}
  - {name: secret, secret: {secretName: secret}}
  - {name: podinfo, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: "metadata.annotations['virtualkubelet.liqo.io/downward-labels']"}}]}}
  - name: ~kube-api-access-.*
    projected:
      sources:
      - {serviceAccountToken: null, secret: {name: whole-token, items: [{key: '~kube-api-access-.*-[0-9a-f]{6}', path: token}]}}
      - {configMap: {name: kube-root-ca.crt.ROMESHORT, items: [{key: ca.crt, path: ca.crt}]}}
      - {downwardAPI: null, secret: {name: whole-token, items: [{key: namespace, path: namespace}]}}
  initContainers:
  - name: first
    command: ["true"]
    env: [ENVIRONMENT, {name: A, value: one}]
  containers:
  - name: main
    image: playground.local/tools:1
    imagePullPolicy: Never
    workingDir: /tmp
    ports: [{name: http, containerPort: 80, protocol: TCP, hostPort: null}]
    env:
    - ENVIRONMENT
    - SECRETS
    - {name: ACCOUNT, value: robot, valueFrom: null}
    - {name: FROM_CONFIG, valueFrom: {configMapKeyRef: {name: config, key: k}}}
    envFrom: [{secretRef: {name: secret, optional: true}}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 5}
    lifecycle: {preStop: {exec: {command: ["true"]}}}
    securityContext: {allowPrivilegeEscalation: false}
`

// environment is the variables that lead containers to the API server of rome.
var environment = []string{
	"{name: KUBERNETES_SERVICE_HOST, value: kubernetes.default}", `{name: KUBERNETES_SERVICE_PORT, value: "443"}`,
	`{name: KUBERNETES_SERVICE_PORT_HTTPS, value: "443"}`,
	`{name: KUBERNETES_PORT, value: "tcp://kubernetes.default:443"}`, `{name: KUBERNETES_PORT_443_TCP, value: "tcp://kubernetes.default:443"}`,
	"{name: KUBERNETES_PORT_443_TCP_PROTO, value: tcp}", "{name: KUBERNETES_PORT_443_TCP_ADDR, value: kubernetes.default}",
	`{name: KUBERNETES_PORT_443_TCP_PORT, value: "443"}`,
}

func podRow(t *testing.T) {
	s := offload(t)
	s.kubectl(t, "create", "serviceaccount", "robot")
	s.kubectl(t, "create", "configmap", "config", "--from-literal=k=v")
	s.kubectl(t, "create", "secret", "generic", "secret", "--from-literal=PASSWORD=word")
	classes := "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: CLASS}, value: 7, preemptionPolicy: Never}\n---\n" +
		"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: CLASS}, handler: none, overhead: {podFixed: {memory: 5Mi}}}\n"
	rome.Apply(t, strings.ReplaceAll(classes, "CLASS", s.name))
	t.Cleanup(func() { rome.Kubectl(t, "delete", "priorityclass/"+s.name, "runtimeclass/"+s.name) })
	s.kubectl(t, "patch", "namespaceoffloading", "offloading", "--type", "merge", "-p", `{"spec":{"runWithout":["runtimeClassName"]}}`)

	s.apply(t, strings.ReplaceAll(wholePod, "CLASS", s.name))
	// The list of variables starts in the same way in each container. The values of a Secret replace them.
	var secrets []string
	for _, one := range environment {
		name, _, _ := strings.Cut(strings.TrimPrefix(one, "{name: "), ",")
		secrets = append(secrets, "{name: "+name+", valueFrom: {secretKeyRef: {name: secret, key: "+name+", optional: true}}}")
	}
	want := strings.NewReplacer(
		"    - SECRETS", "    - "+strings.Join(secrets, "\n    - "), "    - ENVIRONMENT", "    - "+strings.Join(environment, "\n    - "),
		"ENVIRONMENT", strings.Join(environment, ", "),
	).Replace(wholeRemote)
	pod := s.wantRemote(t, podKind, "whole", want)
	tolerations := inJSON(fields.At(pod.Object, "spec.tolerations"))
	if !strings.Contains(tolerations, `"mine"`) || strings.Contains(tolerations, "virtual-node.liqo.io/not-allowed") {
		t.Errorf("tolerations are %s", tolerations)
	}
	s.wantRemote(t, shadowPodKind, "whole", "{metadata: {labels: {liqo.io/shadowPod: null, virtualkubelet.liqo.io/origin: ROMEID}}, spec: "+
		"{pod: {nodeName: null, schedulerName: null, serviceAccountName: null}}}")
	s.wantLocal(t, podKind, "whole", `
metadata: {labels: {liqo.io/shadowPod: "true", app: x, tier: back}}
status:
  phase: Running
  podIP: '~[0-9.]+'
  hostIP: '~[0-9.]+'
  startTime: '*'
  initContainerStatuses: [{name: first, state: {terminated: {exitCode: 0}}}]
  containerStatuses: [{name: main, ready: true, restartCount: 0, state: {running: {}}}]
`)
	if output := s.kubectl(
		t, "exec", "whole", "--", "sh", "-c",
		"cat /config/k; echo; cat /secret/PASSWORD; echo; echo $PASSWORD $FROM_CONFIG; grep tier /podinfo/labels",
	); output != "v\nword\nword v\ntier=\"back\"" {
		t.Errorf("in the pod: %s", output)
	}
	s.wantRemote(t, shadowPodKind, "whole", "{status: {phase: Running}}")
	podLifecycle(t, s)
	unmanagedPod(t, s)
	affinityPresets(t, s)
}

// addresses checks that rome shows the address under which rome reaches the pod.
func addresses(t *testing.T, s namespace, name string) {
	t.Helper()
	local, remote := s.local(t, podKind, name), s.inMilan(t, podKind, name)
	view, err := networks.See(rome, milan)
	if err != nil {
		t.Fatal(err)
	}
	var found env.Pod
	all, err := milan.Pods(s.remote, map[string]string{"app": "x"})
	for _, pod := range all {
		if pod.Name == name {
			found = pod
		}
	}
	if found.Name == "" {
		t.Fatalf("pod %s is not Ready in milan (%v)", name, err)
	}
	want, err := view.Pod(found.Address)
	if err != nil {
		t.Fatal(err)
	}
	if is := fields.At(local.Object, "status.podIP"); is != want.String() {
		t.Errorf("pod %s has the address %v in rome, and %v in milan: want %s", name, is, fields.At(remote.Object, "status.podIP"), want)
	}
}

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: x, version: one}, annotations: {note: one}}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
`

// podLifecycle changes and deletes a pod in both clusters.
func podLifecycle(t *testing.T, s namespace) {
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "lifecycle"))
	s.running(t, "lifecycle")
	addresses(t, s, "lifecycle")
	s.kubectl(t, "label", "pod", "lifecycle", "version=two", "--overwrite")
	s.kubectl(t, "annotate", "pod", "lifecycle", "note=two", "--overwrite")
	s.kubectl(t, "label", "pod", "lifecycle", "fresh=yes")
	for _, kind := range []string{shadowPodKind, podKind} {
		s.wantRemote(t, kind, "lifecycle", "metadata: {labels: {version: two, fresh: 'yes'}, annotations: {note: two}}")
	}
	s.kubectl(t, "label", "pod", "lifecycle", "fresh-")
	s.wantRemote(t, podKind, "lifecycle", "metadata: {labels: {version: two, fresh: null}}")
	s.remoteKubectl(t, "label", "shadowpod", "lifecycle", "version=edited", "--overwrite")
	for _, kind := range []string{shadowPodKind, podKind} {
		s.wantRemote(t, kind, "lifecycle", "metadata: {labels: {version: two}}")
	}

	recreated := func(command ...string) {
		t.Helper()
		before := s.inMilan(t, podKind, "lifecycle")
		restarts := fields.At(s.local(t, podKind, "lifecycle").Object, "status.containerStatuses.0.restartCount")
		start := time.Now()
		s.remoteKubectl(t, append(command, "--wait=false")...)
		env.Eventually(t, env.Hang, "lifecycle runs again in milan", func() (string, bool) {
			now := s.inMilan(t, podKind, "lifecycle")
			return "", now != nil && now.GetUID() != before.GetUID() && fields.At(now.Object, "status.phase") == "Running"
		})
		clusters.Measure("remote pod deleted to Running again: "+strings.Join(command, " "), "%.1f s", time.Since(start).Seconds())
		count, _ := restarts.(int64)
		s.wantLocal(t, podKind, "lifecycle", fmt.Sprintf("status: {phase: Running, containerStatuses: [{ready: true, restartCount: %d}]}", count+1))
	}
	local := s.local(t, podKind, "lifecycle").GetUID()
	recreated("delete", "pod", "lifecycle")
	recreated("delete", "shadowpod", "lifecycle")
	if now := s.local(t, podKind, "lifecycle"); now.GetUID() != local {
		t.Error("the pod in rome has been replaced")
	}
	s.kubectl(t, "delete", "pod", "lifecycle", timeout)
	for _, kind := range []string{shadowPodKind, podKind} {
		if found := s.inMilan(t, kind, "lifecycle"); found != nil {
			t.Errorf("the pod in rome is gone, but the %s in milan still exists: %s", kind, inJSON(found.Object["metadata"]))
		}
	}
}

// unmanagedPod creates a pod in milan with the name of an offloaded pod: Liqo does not change it.
func unmanagedPod(t *testing.T, s namespace) {
	own := "{apiVersion: v1, kind: Pod, metadata: {name: unmanaged}, spec: {containers: [{name: main, image: 'playground.local/tools:1', " +
		"imagePullPolicy: Never}]}}"
	s.createInMilan(t, own)
	s.remoteKubectl(t, "wait", "--for=condition=Ready", "pod/unmanaged", timeout)
	before := s.inMilan(t, podKind, "unmanaged")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "unmanaged"))
	s.wantEvent(t, "Pod", "unmanaged", "NameTaken", "not touched")
	s.kubectl(t, "delete", "pod", "unmanaged", timeout)
	after := s.inMilan(t, podKind, "unmanaged")
	if after == nil || withoutStatus(after) != withoutStatus(before) {
		t.Fatalf("the pod of milan was changed or deleted: %s, then %s", inJSON(before), inJSON(after))
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "unmanaged"))
	s.remoteKubectl(t, "delete", "pod", "unmanaged")
	s.running(t, "unmanaged")
}

// withoutStatus returns an object without what its kubelet writes at any time, and with the names of all who wrote to it.
func withoutStatus(object *unstructured.Unstructured) string {
	var writers []string
	for _, one := range object.GetManagedFields() {
		writers = append(writers, one.Manager+" "+one.Subresource)
	}
	slices.Sort(writers)
	rest := object.DeepCopy()
	delete(rest.Object, "status")
	rest.SetManagedFields(nil)
	rest.SetResourceVersion("")
	return inJSON(rest.Object) + inJSON(writers)
}

// affinityPresets checks the annotations that spread pods over the nodes of milan.
func affinityPresets(t *testing.T, s namespace) {
	preset := func(name, annotations, affinity string) {
		s.apply(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+", labels: {app: x, pod-template-hash: h}, annotations: {"+
			annotations+"}}, spec: {nodeSelector: {liqo.io/type: virtual-node}, "+
			affinity+"terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'playground.local/tools:1', imagePullPolicy: Never}]}}")
	}
	preset("soft", "liqo.io/anti-affinity-preset: soft", "")
	preset("hard", "liqo.io/anti-affinity-preset: hard, liqo.io/anti-affinity-labels: 'pod-template-hash'", "")
	verbatim := "podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, podAffinityTerm: {topologyKey: zone, " +
		"labelSelector: {matchLabels: {app: z}}}}]}"
	preset("propagated", "liqo.io/anti-affinity-preset: propagate",
		"affinity: {"+verbatim+", podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: "+
			"zone, labelSelector: {matchLabels: {app: z}}}}]}}, ")
	s.wantRemote(t, podKind, "soft", `spec: {affinity: {nodeAffinity: null, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: null, preferredDuringSchedulingIgnoredDuringExecution: [
  {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: x, pod-template-hash: null}}}}]}}}`)
	s.wantRemote(t, podKind, "hard", `spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: null, requiredDuringSchedulingIgnoredDuringExecution: [
  {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: null, pod-template-hash: h}}}]}}}`)
	s.wantRemote(t, podKind, "propagated", "spec: {affinity: {podAffinity: null, nodeAffinity: null, "+verbatim+"}}")
}

// mutablePods changes the mutable fields of a running pod: milan follows without a new pod.
func mutablePods(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: changing}
spec:
  terminationGracePeriodSeconds: 1
  activeDeadlineSeconds: 3600
  containers: [{name: main, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}]
`)
	s.running(t, "changing")
	uid := s.inMilan(t, podKind, "changing").GetUID()

	s.kubectl(t, "set", "image", "pod/changing", "main=playground.local/demo:1")
	s.wantRemote(
		t, podKind, "changing",
		"{spec: {containers: [{image: 'playground.local/demo:1'}]}, status: {containerStatuses: [{image: 'playground.local/demo:1', ready: true}]}}",
	)
	s.wantLocal(t, podKind, "changing", "status: {containerStatuses: [{image: 'playground.local/demo:1', ready: true, restartCount: 1}]}")

	s.kubectl(
		t, "patch", "pod", "changing", "--type=json", "-p",
		`[{"op":"add","path":"/spec/tolerations/-","value":{"key":"late","operator":"Exists","effect":"NoSchedule"}}]`,
	)
	env.Eventually(t, env.Hang, "the toleration arrives in milan", func() (string, bool) {
		is, _ := fields.At(s.inMilan(t, podKind, "changing").Object, "spec.tolerations").([]any)
		return inJSON(is), slices.ContainsFunc(is, func(one any) bool { return strings.Contains(inJSON(one), `"late"`) })
	})
	s.kubectl(t, "patch", "pod", "changing", "-p", `{"spec":{"activeDeadlineSeconds":1800}}`)
	s.wantRemote(t, podKind, "changing", "{spec: {activeDeadlineSeconds: 1800}}")

	s.kubectl(t, "debug", "changing", "--image="+env.ToolsImage, "-c", "debugger", "--target=main", "--image-pull-policy=Never", "--", "sleep", "600")
	s.wantRemote(t, podKind, "changing", "{spec: {ephemeralContainers: [{name: debugger, targetContainerName: main}]}, status: "+
		"{ephemeralContainerStatuses: [{name: debugger, state: {running: {}}}]}}")
	s.wantLocal(t, podKind, "changing", "status: {ephemeralContainerStatuses: [{name: debugger, state: {running: {}}}]}")

	if now := s.inMilan(t, podKind, "changing").GetUID(); now != uid {
		t.Errorf("pod %s in milan has become %s", uid, now)
	}
	if result := rome.TryKubectl("", "-n", s.name, "patch", "pod", "changing", "-p", `{"spec":{"hostname":"other"}}`); result.Code == 0 {
		t.Errorf("an immutable field was changed: %s", result)
	}
	s.kubectl(t, "patch", "pod", "changing", "-p", `{"spec":{"activeDeadlineSeconds":1}}`)
	s.wantLocal(t, podKind, "changing", "status: {phase: Failed, reason: DeadlineExceeded}")
}
