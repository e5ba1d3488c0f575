// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// words are strings that a hostile peer may try.
var words = []string{
	"", "a", "b", "i", "miner", "Running", "Succeeded", "Failed", "Pending", "Ready", "True", "cpu", "10.10.0.1", "10.10.0.2", "0.0.0.0", "fe80::1%eth0",
	"::ffff:10.10.0.1", "not a type", "a/b/c", "\x1b[2J\x00\xff", strings.Repeat("long ", 10_000), "\u202e", "SIGKILL",
}

// hostilePod returns a pod as a hostile peer may send it, derived from the bytes that next returns.
func hostilePod(next func() byte) *corev1.Pod {
	pod := &corev1.Pod{}
	hostile(reflect.ValueOf(&pod.Status).Elem(), next)
	pod.UID = types.UID(words[int(next())%4])
	return pod
}

func hostile(value reflect.Value, next func() byte) {
	switch value.Interface().(type) {
	case metav1.FieldsV1, intstr.IntOrString:
		return // decoding validates their form
	case metav1.Time:
		value.Set(reflect.ValueOf(metav1.Time{Time: time.Unix(int64(next())<<(next()%64), 0)}))
		return
	case metav1.MicroTime:
		value.Set(reflect.ValueOf(metav1.MicroTime{Time: time.Unix(int64(next())<<(next()%64), 0)}))
		return
	case resource.Quantity:
		value.Set(reflect.ValueOf(*resource.NewQuantity(int64(int8(next()))<<(next()%64), resource.BinarySI)))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if next()%2 == 0 {
			value.Set(reflect.New(value.Type().Elem()))
			hostile(value.Elem(), next)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			hostile(value.Field(i), next)
		}
	case reflect.Slice:
		many := int(next() % 8)
		value.Set(reflect.MakeSlice(value.Type(), many, many))
		for i := range many {
			hostile(value.Index(i), next)
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for range next() % 4 {
			key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
			hostile(key, next)
			hostile(item, next)
			value.SetMapIndex(key, item)
		}
	case reflect.String:
		value.SetString(words[int(next())%len(words)])
	case reflect.Bool:
		value.SetBool(next()%2 == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(int64(int8(next())) << (next() % 64) & 0x7fffffff)
		if next()%4 == 0 {
			value.SetInt(-1)
		}
	case reflect.Uint8:
		value.SetUint(uint64(next()))
	}
}

// reader returns one byte after the other, and zeros after the last.
func reader(data []byte) func() byte {
	return func() (next byte) {
		if len(data) > 0 {
			next, data = data[0], data[1:]
		}
		return next
	}
}

// FuzzPodStatus projects arbitrary remote statuses of a pod with two containers and an init container.
func FuzzPodStatus(f *testing.F) {
	f.Add([]byte{}, byte(0))
	f.Add([]byte("\x05\x01\x02\x03\x04\x05\x06\x07\x08\x09"), byte(1))
	for i := range byte(8) { // long inputs
		data := make([]byte, 3000)
		for j := range data {
			data[j] = byte(j*j*7+j*13) ^ i*31
		}
		f.Add(data, i)
	}
	f.Fuzz(func(t *testing.T, data []byte, sort byte) {
		next := reader(data)
		local := hostilePod(next) // the earlier status also came from the peer
		local.Spec = corev1.PodSpec{
			RestartPolicy: []corev1.RestartPolicy{"", corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}[sort%4],
			Containers: []corev1.Container{
				{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}},
				{Name: "b", VolumeMounts: []corev1.VolumeMount{{Name: "a", MountPath: "a"}}},
			},
			InitContainers: []corev1.Container{{Name: "i"}},
		}
		local.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		var restarts podstatus.Restarts
		for range 2 + sort%3 {
			remote := hostilePod(next)
			before, theirs := local.DeepCopy(), remote.DeepCopy()
			restarts = restarts.Observe(local, remote)
			status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote, Restarts: restarts, Translator: swap{}, HostIP: "10.10.9.9"})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(before, local) || !reflect.DeepEqual(theirs, remote) {
				t.Fatal("an object of a cache was changed")
			}
			believable(t, local, &status)
			if remote.Status.Size() <= 256<<10 {
				podstatus.Trim(&theirs.Status) // as it is cached
				if cached, err := podstatus.Of(podstatus.Facts{
					Mapping: mapping, Local: local, Remote: theirs, Restarts: restarts, Translator: swap{},
					HostIP: "10.10.9.9",
				}); err != nil || !reflect.DeepEqual(cached, status) {
					t.Fatalf("from the cache: %v %+v\nwant %+v", err, cached, status)
				}
			}
			local.Status = status
		}
	})
}

// believable checks that a status is consistent with the pod, and bounded.
func believable(t *testing.T, local *corev1.Pod, status *corev1.PodStatus) {
	t.Helper()
	if !slices.Contains([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}, status.Phase) {
		t.Errorf("phase %q", status.Phase)
	}
	if before := local.Status.Phase; (before == corev1.PodSucceeded || before == corev1.PodFailed) && status.Phase != before {
		t.Errorf("phase %s after the pod has finished as %s", status.Phase, before)
	}
	if status.QOSClass != local.Status.QOSClass || status.HostIP != "10.10.9.9" && local.Status.Phase == corev1.PodRunning && status.Phase == corev1.PodRunning {
		t.Errorf("class %q, host %q", status.QOSClass, status.HostIP)
	}
	if len(status.PodIPs) > 2 || len(status.PodIPs) > 0 && status.PodIP != status.PodIPs[0].IP {
		t.Errorf("addresses %v", status.PodIPs)
	}
	for _, one := range status.PodIPs {
		if address, err := netip.ParseAddr(one.IP); err != nil || !netip.MustParsePrefix("10.30.0.0/16").Contains(address) {
			t.Errorf("address %s is not one of the peer", one.IP)
		}
	}
	for _, all := range []struct {
		spec     []corev1.Container
		statuses []corev1.ContainerStatus
	}{{local.Spec.InitContainers, status.InitContainerStatuses}, {local.Spec.Containers, status.ContainerStatuses}, {nil, status.EphemeralContainerStatuses}} {
		seen := map[string]bool{}
		for _, one := range all.statuses {
			if seen[one.Name] || !slices.ContainsFunc(all.spec, func(container corev1.Container) bool { return container.Name == one.Name }) {
				t.Errorf("container %q: the pod has none of that name, or the status has two", one.Name)
			}
			seen[one.Name] = true
			if one.RestartCount < 0 {
				t.Errorf("%d restarts of %s", one.RestartCount, one.Name)
			}
			for name, quantity := range one.AllocatedResources {
				if one.Name != "a" || name != "cpu" || quantity.Cmp(resource.MustParse("1")) > 0 || quantity.Sign() < 0 {
					t.Errorf("container %s with %s %s", one.Name, quantity.String(), name)
				}
			}
			if states := one.State; states.Running != nil && (states.Waiting != nil || states.Terminated != nil) || states.Waiting != nil && states.Terminated != nil {
				t.Errorf("container %s in two states", one.Name)
			}
		}
	}
	written, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) > 400<<10 {
		t.Errorf("a status of %d bytes", len(written))
	}
	if strings.ContainsAny(string(written), "\x1b\x00") || strings.Contains(string(written), `\u001b`) || strings.Contains(string(written), `\u0000`) {
		t.Error("the status has characters that move the cursor of a terminal")
	}
}

// FuzzShadowPod projects arbitrary pods: no ShadowPod may have what is never reflected.
func FuzzShadowPod(f *testing.F) {
	f.Add([]byte{}, "", "")
	f.Add([]byte("\x05\x01\x02\x03\x04\x05\x06\x07\x08\x09"), "hard", "a,b")
	for i := range byte(8) {
		data := make([]byte, 6000)
		for j := range data {
			data[j] = byte(j*j*5+j*11) ^ i*37
		}
		f.Add(data, []string{"soft", "hard", "propagate", "else"}[i%4], words[i])
	}
	f.Fuzz(func(t *testing.T, data []byte, preset, apart string) {
		next := reader(data)
		local := &corev1.Pod{}
		hostile(reflect.ValueOf(&local.Spec).Elem(), next)
		hostile(reflect.ValueOf(&local.Labels).Elem(), next)
		local.Name, local.Annotations = words[int(next())%len(words)], map[string]string{labels.AntiAffinityPreset: preset, labels.AntiAffinityLabels: apart}
		before := local.DeepCopy()
		for _, options := range []podspec.Options{
			{}, {APIServer: podspec.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443"}},
		} {
			remote, err := podspec.ShadowPod(mapping, local, options)
			if !reflect.DeepEqual(before, local) {
				t.Fatal("an object of a cache was changed")
			}
			if err != nil {
				continue
			}
			crosses(t, local, remote.Spec.Pod, options)
			if remote.Labels[labels.Origin] != mapping.LocalID || *remote.Namespace != mapping.Remote {
				t.Errorf("labels %v in namespace %s", remote.Labels, *remote.Namespace)
			}
			podspec.Amended(&local.Spec, remote.Spec.Pod)
		}
		_ = podspec.TokenRequests(local)
		_ = podspec.DroppedFields(local)
	})
}

func crosses(t *testing.T, local *corev1.Pod, remote *corev1.PodSpec, options podspec.Options) {
	t.Helper()
	if remote.HostNetwork || remote.HostPID || remote.HostIPC || remote.AutomountServiceAccountToken == nil || *remote.AutomountServiceAccountToken ||
		remote.NodeName != "" || remote.ServiceAccountName != "" || remote.PriorityClassName != "" || remote.NodeSelector != nil {
		t.Error("a field that is never reflected was reflected")
	}
	for _, volume := range remote.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil || source.PodCertificate != nil {
				t.Error("a credential of the peer's own is mounted")
			}
		}
	}
	for _, toleration := range remote.Tolerations {
		if toleration.Key == labels.TaintVirtualNode {
			t.Error("the pod may run on virtual nodes of the peer")
		}
	}
	written, err := json.Marshal(remote)
	if err != nil {
		t.Fatal(err)
	}
	had, err := json.Marshal(local.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) > 2*len(had)+64<<10*(1+len(remote.Containers)+len(remote.InitContainers)+len(remote.EphemeralContainers)) {
		t.Errorf("%d bytes out of %d, with %+v", len(written), len(had), options)
	}
}
