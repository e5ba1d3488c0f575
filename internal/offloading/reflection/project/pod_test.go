// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

func mustShadowPod(t *testing.T, local *corev1.Pod, options podspec.Options) *vkapply.ShadowPodApplyConfiguration {
	t.Helper()
	before := local.DeepCopy()
	remote, err := podspec.ShadowPod(mapping, local, options)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, local) {
		t.Error("the pod of the cache was changed")
	}
	return remote
}

// TestAmended: an existing pod gets the changes of the intent that Kubernetes allows, and nothing else.
func TestAmended(t *testing.T) {
	live := read[corev1.PodSpec](t, `
initContainers: [{name: migrate, image: "migrate:1"}]
containers: [{name: web, image: "web:1", resources: {requests: {cpu: "1", example.com/gpu: "1"}}}, {name: injected, image: "mesh:1"}]
activeDeadlineSeconds: 100
nodeName: m1
serviceAccountName: default
tolerations: [{key: a, operator: Exists}, {key: of-the-provider, operator: Exists}]
ephemeralContainers: [{name: first, image: busybox}]
`)
	intent := read[corev1.PodSpec](t, `
initContainers: [{name: migrate, image: "migrate:2"}]
containers: [{name: web, image: "web:2", env: [{name: NEW, value: x}], resources: {requests: {cpu: "2", example.com/gpu: "2"}}}, {name: never-there, image: x}]
activeDeadlineSeconds: 50
tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}]
hostAliases: [{ip: 10.0.0.1}]
ephemeralContainers: [{name: first, image: changed}, {name: second, image: busybox}]
`)
	want := read[corev1.PodSpec](t, `
initContainers: [{name: migrate, image: "migrate:2"}]
containers: [{name: web, image: "web:2", resources: {requests: {cpu: "2", example.com/gpu: "1"}}}, {name: injected, image: "mesh:1"}]
activeDeadlineSeconds: 50
nodeName: m1
serviceAccountName: default
tolerations: [{key: a, operator: Exists}, {key: of-the-provider, operator: Exists}, {key: b, operator: Exists}]
ephemeralContainers: [{name: first, image: busybox}, {name: second, image: busybox}]
`)
	before := live.DeepCopy()
	got := podspec.Amended(&live, &intent)
	if difference := cmp.Diff(&want, got); difference != "" {
		t.Error(difference)
	}
	if difference := cmp.Diff(*before, live); difference != "" {
		t.Errorf("the live one was changed:\n%s", difference)
	}
	if again := podspec.Amended(got, &intent); !reflect.DeepEqual(again, got) {
		t.Error("the second time changes something")
	}
	intent.ActiveDeadlineSeconds = nil
	if got := podspec.Amended(&live, &intent); *got.ActiveDeadlineSeconds != 100 {
		t.Errorf("deadline %d although the intent has none: Kubernetes does not allow its removal", *got.ActiveDeadlineSeconds)
	}
}

// TestAmendedIntent: a change of a pod's labels, or of the API server settings, does not change the specification that a pod was created with.
func TestAmendedIntent(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{labels.AntiAffinityPreset: "hard"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web:1"}}
	there := mustShadowPod(t, pod, podspec.Options{}).Spec.Pod
	pod.Labels["tier"] = "front"
	intent := mustShadowPod(t, pod, podspec.Options{APIServer: podspec.APIServer{Enabled: true, Host: "a", Port: "1"}}).Spec.Pod
	if reflect.DeepEqual(there, intent) {
		t.Fatal("the intents are equal, so the test proves nothing")
	}
	if difference := cmp.Diff(there, podspec.Amended(there, intent)); difference != "" {
		t.Error(difference)
	}
}

// annotated are annotations, some of which a peer refuses.
var annotated = map[string]string{"iam.amazonaws.com/role": "shop", "cni.projectcalico.org/ipAddrs": `["10.0.0.1"]`, "prometheus.io/scrape": "true"}

// TestServiceAnnotations: a Service chooses no address at the provider, and joins no Services of other clusters there.
func TestServiceAnnotations(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{
		"metallb.io/loadBalancerIPs": "192.0.2.1", "lbipam.cilium.io/ips": "192.0.2.1", "service.cilium.io/global": "true", "note": "kept",
	}}}
	if difference := cmp.Diff(map[string]string{"note": "kept"}, kinds.CopyService(mapping, service).Annotations); difference != "" {
		t.Error(difference)
	}
}

// TestAnnotationsStay: a ShadowPod has none of the annotations that the peer refuses.
func TestAnnotationsStay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: annotated}}
	intent, err := podspec.ShadowPod(mapping, pod, podspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(map[string]string{"prometheus.io/scrape": "true"}, intent.Annotations); difference != "" || len(pod.Annotations) != 3 {
		t.Error(difference)
	}
}

func TestDroppedFields(t *testing.T) {
	class := "gvisor"
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, HostPID: true, RuntimeClassName: &class, NodeSelector: map[string]string{"a": "b"}}}
	if got, want := podspec.DroppedFields(pod), []string{"hostNetwork", "hostPID", "runtimeClassName"}; !reflect.DeepEqual(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
	isPodCertificate := read[corev1.PodSpec](t, `{volumes: [{name: a, emptyDir: {}}, {name: b, projected: {sources: [{podCertificate: {signerName: x}}]}}]}`)
	if got := podspec.DroppedFields(&corev1.Pod{Spec: isPodCertificate}); !reflect.DeepEqual(got, []string{"podCertificate"}) {
		t.Errorf("dropped %v", got)
	}
	if got := podspec.DroppedFields(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotated}}); !reflect.DeepEqual(got, []string{
		"annotation cni.projectcalico.org/ipAddrs", "annotation iam.amazonaws.com/role",
	}) {
		t.Errorf("dropped %v", got)
	}
	windows := read[corev1.PodSpec](t, `{os: {name: windows}}`)
	if got := podspec.DroppedFields(&corev1.Pod{Spec: windows}); !reflect.DeepEqual(got, []string{"os"}) {
		t.Errorf("dropped %v", got)
	}
	if got := podspec.DroppedFields(&corev1.Pod{}); got != nil {
		t.Errorf("dropped %v of an empty pod", got)
	}
}

func TestTokenSecret(t *testing.T) {
	long := strings.Repeat("a", 250)
	for _, name := range []string{"web", long} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u"}, Spec: corev1.PodSpec{ServiceAccountName: long}}
		secret := podspec.TokenSecret(mapping, pod, map[string]string{"v-abcdef": "secret"}, time.Date(2025, 5, 1, 13, 0, 0, 0, time.FixedZone("", 3600)), 3600)
		if len(*secret.Name) > 253 || *secret.Name != podspec.TokenSecretName(name) || !strings.HasSuffix(*secret.Name, "-token") {
			t.Errorf("name %s", *secret.Name)
		}
		if len(secret.Labels[labels.TokenPod]) > 63 || len(secret.Labels[labels.TokenServiceAccount]) > 63 {
			t.Errorf("labels %v", secret.Labels)
		}
		if !project.NamespaceMapping.Reflected(mapping, &metav1.ObjectMeta{Labels: secret.Labels}) {
			t.Error("the Secret does not count as ours")
		}
		want := map[string]string{labels.TokenPodUID: "u", labels.TokenExpiration: "2025-05-01T12:00:00Z", labels.TokenLifetime: "3600"}
		if difference := cmp.Diff(want, secret.Annotations); difference != "" {
			t.Error(difference)
		}
		if difference := cmp.Diff(map[string][]byte{"v-abcdef": []byte("secret"), "namespace": []byte("shop")}, secret.Data); difference != "" {
			t.Error(difference)
		}
	}
	if podspec.TokenSecretName("web") != "web-token" {
		t.Errorf("the documented name is web-token, not %s", podspec.TokenSecretName("web"))
	}
	if a, b := podspec.TokenSecretName(long+"a"), podspec.TokenSecretName(long+"b"); a == b {
		t.Error("two pods have one Secret")
	}
	expires := time.Date(2025, 5, 1, 13, 0, 0, 0, time.UTC)
	if got := podspec.TokenRefresh(expires, 3600); got != expires.Add(-12*time.Minute) {
		t.Errorf("a token that ends at %s is refreshed at %s", expires, got)
	}
}

func TestConfigMapName(t *testing.T) {
	for id, want := range map[string]string{
		"1f0b9a3c-rome": "kube-root-ca.crt.1f0b9", "rome-id": "kube-root-ca.crt.rome", "r": "kube-root-ca.crt.r",
	} {
		l := project.NamespaceMapping{LocalID: id}
		if got := project.ConfigMapName(l, "kube-root-ca.crt"); got != want || project.LocalConfigMapName(l, got) != "kube-root-ca.crt" {
			t.Errorf("of %s: %s, want %s", id, got, want)
		}
	}
	if project.ConfigMapName(mapping, "settings") != "settings" || project.LocalConfigMapName(mapping, "settings") != "settings" {
		t.Error("the name of another ConfigMap is changed")
	}
}

// TestNotKnownYet: an address that cannot be translated yet is an error, and no reason to leave it out.
func TestNotKnownYet(t *testing.T) {
	later := errors.New("the peer's networks are not agreed")
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.10.1.5"}}},
	}
	if intent, err := kinds.ShadowEndpointSlice(mapping, slice, kinds.There{Found: true}, swap{later}); intent != nil || !errors.Is(err, later) {
		t.Errorf("slice %v, error %v", intent, err)
	}
	remote := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.10.1.5"}}
	if status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: &corev1.Pod{}, Remote: remote, Translator: swap{later}}); !errors.Is(err, later) {
		t.Errorf("status %v, error %v", status, err)
	}
	// The end of a pod is reported nevertheless, and so is its status while it is being deleted.
	was := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.30.1.5", PodIPs: []corev1.PodIP{{IP: "10.30.1.5"}}}}
	over := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded, PodIP: "10.10.1.5"}}
	if status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: was, Remote: over, Translator: swap{later}}); err != nil ||
		status.Phase != corev1.PodSucceeded || status.PodIP != "10.30.1.5" {
		t.Errorf("a pod that has ended: status %v, error %v", status, err)
	}
	leaving := was.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: leaving, Remote: remote, Translator: swap{later}}); err != nil ||
		status.PodIP != "10.30.1.5" {
		t.Errorf("a pod that is being deleted: status %v, error %v", status, err)
	}
	status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: &corev1.Pod{}, Remote: remote})
	if err != nil || status.PodIP != "" || status.PodIPs != nil || status.HostIPs != nil || status.Phase != corev1.PodRunning {
		t.Errorf("with addresses off: status %v, error %v", status, err)
	}
	local := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.30.1.5"}}
	if status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Translator: swap{}}); err != nil || !reflect.DeepEqual(status, local.Status) {
		t.Errorf("without a remote pod: status %v, error %v", status, err)
	}
}

func TestRestarts(t *testing.T) {
	local := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}, {Name: "late"}}}}
	since := metav1.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, StartedAt: since, FinishedAt: since}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	lost := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", StartedAt: metav1.Unix(0, 0)}}
	var restarts podstatus.Restarts
	for i, step := range []struct {
		uid           string
		state         corev1.ContainerState
		restarted     bool // this process, before
		theirs, shown int32
	}{
		{uid: "1", state: running, theirs: 0, shown: 0},
		{uid: "1", state: running, theirs: 2, shown: 2},
		{uid: "2", state: waiting, theirs: 0, shown: 3}, // created again: one restart more
		{uid: "2", state: running, theirs: 0, shown: 3},
		{uid: "2", state: running, theirs: 1, shown: 4},
		{uid: "3", state: waiting, theirs: 0, shown: 5},
		{uid: "4", state: lost, theirs: 0, shown: 5}, // nothing of pod 3 ran, and nothing of the next ones
		{uid: "5", state: failed, theirs: 0, shown: 5},
		{uid: "6", state: ended, theirs: 0, shown: 5},
		{uid: "6", state: waiting, theirs: 0, shown: 5},
		{uid: "7", state: running, theirs: 0, shown: 6},
		{uid: "7", state: running, theirs: 0, shown: 6, restarted: true}, // derived from the local status
		{uid: "7", state: running, theirs: 1, shown: 7},
		{uid: "8", state: running, theirs: 0, shown: 7, restarted: true}, // created again while not observed: the count does not decrease
		{uid: "9", state: running, theirs: 2147483647, shown: 2147483647},
		{uid: "10", state: running, theirs: 2, shown: 2147483647},
	} {
		if step.restarted {
			restarts = podstatus.Restarts{}
		}
		remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(step.uid)}}
		remote.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: step.theirs, State: step.state}}
		next := restarts.Observe(local, remote)
		if again := next.Observe(local, remote); !again.Equal(next) {
			t.Errorf("step %d: the same pod counts twice", i)
		}
		restarts = next
		status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote, Restarts: restarts})
		if err != nil {
			t.Fatal(err)
		}
		if got := status.ContainerStatuses[0].RestartCount; got != step.shown {
			t.Errorf("step %d: %d restarts, want %d", i, got, step.shown)
		}
		local.Status = status
	}
	if !restarts.Observe(local, nil).Equal(restarts) {
		t.Error("a missing remote pod counts as a new one")
	}
}

// TestReadinessGates: the gates of a pod are those of controllers here, and the peer cannot open them. It cannot report what only this cluster reports, either.
func TestReadinessGates(t *testing.T) {
	early, late := metav1.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC), metav1.Date(2025, 5, 1, 12, 1, 0, 0, time.UTC)
	const gate = "example.org/gate"
	is := func(kind corev1.PodConditionType, status corev1.ConditionStatus, since metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: since}
	}
	for name, test := range map[string]struct {
		mine, theirs []corev1.PodCondition
		want         string
	}{
		"open":                     {[]corev1.PodCondition{is(gate, "True", late)}, []corev1.PodCondition{is("Ready", "True", early)}, "True 12:01:00 "},
		"open before it was Ready": {[]corev1.PodCondition{is(gate, "True", early)}, []corev1.PodCondition{is("Ready", "True", late)}, "True 12:01:00 "},
		"closed": {
			[]corev1.PodCondition{is(gate, "False", late)},
			[]corev1.PodCondition{is("Ready", "True", early)},
			"False 12:01:00 ReadinessGatesNotReady",
		},
		"missing":                        {nil, []corev1.PodCondition{is("Ready", "True", early)}, "False 12:00:00 ReadinessGatesNotReady"},
		"open, and the pod is not Ready": {[]corev1.PodCondition{is(gate, "True", late)}, []corev1.PodCondition{is("Ready", "False", early)}, "False 12:00:00 "},
		"only the peer opens it":         {nil, []corev1.PodCondition{is("Ready", "True", early), is(gate, "True", early)}, "False 12:00:00 ReadinessGatesNotReady"},
	} {
		local := corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: gate}}}, Status: corev1.PodStatus{Conditions: test.mine}}
		remote := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Reason: podstatus.OffloadingBackOff, Conditions: test.theirs}}
		status, err := podstatus.Of(podstatus.Facts{Local: &local, Remote: &remote})
		if err != nil || status.Reason != "" {
			t.Errorf("%s: reason %q, %v", name, status.Reason, err)
		}
		for _, one := range status.Conditions {
			if got := fmt.Sprintf("%s %s %s", one.Status, one.LastTransitionTime.Format(time.TimeOnly), one.Reason); one.Type == corev1.PodReady && got != test.want {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		}
	}
}

// TestUnreachable: the reason changes also for a pod that the network took the readiness from before, and the time since when does not.
func TestUnreachable(t *testing.T) {
	early, now := metav1.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC), metav1.Date(2025, 5, 1, 12, 1, 0, 0, time.UTC)
	for _, test := range []struct {
		status corev1.ConditionStatus
		reason string
		want   string
	}{
		{"True", "", "False ClusterUnreachable 12:01:00"},
		{"False", podstatus.NetworkUnreachable, "False ClusterUnreachable 12:00:00"},
		{"False", "ContainersNotReady", "False ContainersNotReady 12:00:00"},
	} {
		local := corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: test.status, Reason: test.reason,
			LastTransitionTime: early,
		}}}}
		one := podstatus.Unreachable(&local, now).Conditions[0]
		if got := fmt.Sprintf("%s %s %s", one.Status, one.Reason, one.LastTransitionTime.Format(time.TimeOnly)); got != test.want {
			t.Errorf("%s %s becomes %s, want %s", test.status, test.reason, got, test.want)
		}
	}
}

func TestNotOffloaded(t *testing.T) {
	now := metav1.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC)
	pod := read[corev1.Pod](t, `
metadata: {name: web, namespace: shop}
spec: {nodeName: liqo-milan, containers: [{name: web}]}
status:
  podIP: 10.30.1.5
  conditions: [{type: Ready, status: "True"}, {type: PodScheduled, status: "True"}, {type: example.com/gate, status: "True"}]
  containerStatuses: [{name: web, ready: true, state: {running: {}}}]
`)
	for phase, want := range map[corev1.PodPhase]string{
		"": "Pending OffloadingBackOff", corev1.PodPending: "Pending OffloadingBackOff", corev1.PodRunning: "Failed OffloadingAborted",
		corev1.PodUnknown: "Failed OffloadingAborted", corev1.PodSucceeded: "Succeeded ", corev1.PodFailed: "Failed ",
	} {
		pod.Status.Phase = phase
		before := pod.DeepCopy()
		status := podstatus.NotOffloaded(&pod, now)
		if got := string(status.Phase) + " " + status.Reason; got != want {
			t.Errorf("%q becomes %q, want %q", phase, got, want)
		}
		if !reflect.DeepEqual(before, &pod) {
			t.Fatal("the pod of the cache was changed")
		}
		if strings.HasSuffix(want, " ") != reflect.DeepEqual(status, pod.Status) {
			t.Errorf("%q: only a finished pod keeps its status: %v", phase, status)
		}
		if status.Reason != "" && !strings.Contains(status.Message, "liqoctl offload namespace shop") {
			t.Errorf("%q: the message has no remedy: %s", phase, status.Message)
		}
		aborted := status.Reason == podstatus.OffloadingAborted
		if ready := status.Conditions[0].Status == corev1.ConditionFalse; ready != aborted || aborted == (status.ContainerStatuses[0].State.Terminated == nil) {
			t.Errorf("%q: conditions %v, containers %v", phase, status.Conditions, status.ContainerStatuses)
		}
		if status.Conditions[2].Status != corev1.ConditionTrue {
			t.Errorf("%q: a condition of another owner was changed", phase)
		}
		next := pod
		next.Status = status
		if again := podstatus.NotOffloaded(&next, metav1.NewTime(now.Add(time.Hour))); !reflect.DeepEqual(again, status) {
			t.Errorf("%q: the second time changes something:\n%s", phase, cmp.Diff(status, again))
		}
	}
}

func TestGone(t *testing.T) {
	now := metav1.Date(2025, 5, 1, 12, 0, 0, 0, time.UTC)
	for status, want := range map[string]corev1.PodPhase{
		`{phase: Running, containerStatuses: [{name: web, state: {running: {}}}]}`:               corev1.PodFailed,
		`{phase: Running, containerStatuses: [{name: web, state: {terminated: {exitCode: 0}}}]}`: corev1.PodSucceeded,
		`{phase: Running, containerStatuses: [{name: web, state: {terminated: {exitCode: 1}}}]}`: corev1.PodFailed,
		`{phase: Pending}`: corev1.PodFailed,
		`{phase: Succeeded, containerStatuses: [{name: web, state: {terminated: {exitCode: 0}}}]}`:                     corev1.PodSucceeded,
		`{phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: web, ready: true}]}`: corev1.PodFailed,
		`{phase: Running, containerStatuses: [{name: other, state: {terminated: {exitCode: 0}}}]}`:                     corev1.PodFailed,
	} {
		pod := &corev1.Pod{
			Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "web"}}},
			Status: read[corev1.PodStatus](t, status),
		}
		got := podstatus.Gone(pod, now)
		if got.Phase != want {
			t.Errorf("%s: %s, want %s", status, got.Phase, want)
		}
		for _, container := range got.ContainerStatuses {
			if container.State.Terminated == nil || container.Ready {
				t.Errorf("%s: container %+v still runs", status, container)
			}
		}
		for _, condition := range got.Conditions {
			if condition.Status != corev1.ConditionFalse {
				t.Errorf("%s: condition %+v", status, condition)
			}
		}
	}
	always := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "web"}}}}
	always.Status = read[corev1.PodStatus](t, `{phase: Running, containerStatuses: [{name: web, state: {terminated: {exitCode: 0}}}]}`)
	if got := podstatus.Gone(always, now); got.Phase != corev1.PodFailed {
		t.Errorf("a pod with restart policy Always has %s", got.Phase)
	}
}

// TestEndsForGood: a container that its rules do not restart stays terminated. The API server demands the same.
func TestEndsForGood(t *testing.T) {
	for _, test := range []struct {
		spec string // of the container
		pod  corev1.RestartPolicy
		code int32
		back bool
	}{
		{`{name: a}`, corev1.RestartPolicyAlways, 0, true},
		{`{name: a}`, corev1.RestartPolicyOnFailure, 0, false},
		{`{name: a}`, corev1.RestartPolicyOnFailure, 1, true},
		{`{name: a}`, corev1.RestartPolicyNever, 1, false},
		{`{name: a, restartPolicy: Always}`, corev1.RestartPolicyNever, 0, true},
		{`{name: a, restartPolicy: Never}`, corev1.RestartPolicyAlways, 1, false},
		{`{name: a, restartPolicy: OnFailure}`, corev1.RestartPolicyNever, 1, true},
		{`{name: a, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}`, corev1.RestartPolicyNever, 42, true},
		{`{name: a, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}`, corev1.RestartPolicyNever, 1, false},
		{`{name: a, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [42]}}]}`, corev1.RestartPolicyNever, 1, true},
	} {
		local := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: test.pod, Containers: []corev1.Container{read[corev1.Container](t, test.spec)}}}
		local.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: test.code}}},
		}
		remote := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}}
		status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote})
		if err != nil {
			t.Fatal(err)
		}
		if back := status.ContainerStatuses[0].State.Running != nil; back != test.back {
			t.Errorf("%s in a pod %s, ended with %d: runs again %v", test.spec, test.pod, test.code, back)
		}
	}
}

func TestRefused(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{labels.AntiAffinityPreset: "medium"}}}
	if _, err := podspec.ShadowPod(mapping, pod, podspec.Options{}); !errors.Is(err, project.ErrRefused) {
		t.Errorf("error %v", err)
	}
	options := podspec.Options{APIServer: podspec.APIServer{Enabled: true}}
	if _, err := podspec.ShadowPod(mapping, &corev1.Pod{}, options); !errors.Is(err, podspec.ErrNoAPIServer) || errors.Is(err, project.ErrRefused) {
		t.Errorf("error %v", err)
	}
}

// read decodes a value from YAML.
func read[T any](t *testing.T, text string) (value T) {
	t.Helper()
	fields, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(fields, &value); err != nil {
		t.Fatal(err)
	}
	return value
}
