// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

var update = flag.Bool("update", false, "write the results into testdata")

// TestGolden reads cases of the sections "NAME before" (a local object) and "NAME with" (the options of a pod, or the remote pod or event), and compares the
// projection with "NAME after". "NAME tokens" has the token requests of a pod.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		archive := parse(t, file)
		for i, section := range archive.Files {
			name, what, _ := strings.Cut(section.Name, " ")
			if what != "after" && what != "tokens" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+section.Name, func(t *testing.T) {
				got := becomes(t, what, find(archive, name+" before"), find(archive, name+" with"))
				if *update {
					archive.Files[i].Data = []byte(got)
				} else if difference := cmp.Diff(string(section.Data), got); difference != "" {
					t.Errorf("%s (if that is intended: go test ./internal/offloading/reflection/project -update):\n%s", section.Name, difference)
				}
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func parse(t *testing.T, file string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) == 0 {
		t.Fatalf("%s has no sections", file)
	}
	return archive
}

// find returns the text of a section; empty if there is none.
func find(archive *txtar.Archive, name string) string {
	for _, section := range archive.Files {
		if section.Name == name {
			return string(section.Data)
		}
	}
	return ""
}

// options is the YAML form of podspec.Options.
type options struct{ Host, Port, Address, ServicePort, Home string }

// becomes returns the projection of an object as text.
func becomes(t *testing.T, what, before, with string) string {
	t.Helper()
	var result any
	var err error
	switch local := decode(t, before).(type) {
	case *corev1.Service:
		result = kinds.CopyService(mapping, local)
	case *discoveryv1.EndpointSlice:
		result, err = kinds.ShadowEndpointSlice(mapping, local, kinds.There{Found: true}, swap{})
	case *corev1.Pod:
		result, err = podBecomes(t, what, local, with)
	default:
		kind := kinds.Of(local)
		if kind == nil || kind.Copy == nil {
			t.Fatalf("no projection for %T", local)
		}
		result = kind.Copy(mapping, local)
	}
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		t.Fatal(err)
	}
	if string(text) == "null\n" {
		return "nothing\n"
	}
	return string(text)
}

func podBecomes(t *testing.T, what string, local *corev1.Pod, with string) (any, error) {
	t.Helper()
	if what == "tokens" {
		return podspec.TokenRequests(local), nil
	}
	if !strings.Contains(with, "kind:") {
		return podspec.ShadowPod(mapping, local, readOptions(t, with))
	}
	switch theirs := decode(t, with).(type) {
	case *corev1.Event:
		return events.Copy(mapping, local, theirs), nil
	case *corev1.Pod:
		// The earlier remote pod had the UID "first", and its containers ran.
		restarts := podstatus.Restarts{}.Observe(local, theirs)
		if theirs.UID == "second" {
			first := theirs.DeepCopy()
			first.UID = "first"
			for _, all := range [][]corev1.ContainerStatus{first.Status.InitContainerStatuses, first.Status.ContainerStatuses} {
				for i := range all {
					all[i].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
				}
			}
			restarts = podstatus.Restarts{}.Observe(local, first).Observe(local, theirs)
		}
		return podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: theirs, Restarts: restarts, Translator: swap{}, HostIP: "10.10.9.9"})
	default:
		t.Fatalf("no projection of a pod with %T", theirs)
		return nil, nil
	}
}

func readOptions(t *testing.T, text string) (read podspec.Options) {
	t.Helper()
	if text == "" {
		return read
	}
	var given options
	if err := yaml.UnmarshalStrict([]byte(text), &given); err != nil {
		t.Fatal(err)
	}
	read.APIServer = podspec.APIServer{Enabled: true, Host: given.Host, Port: given.Port, ServicePort: given.ServicePort}
	if given.Address != "" {
		read.APIServer.Address = netip.MustParseAddr(given.Address)
	}
	if given.Home != "" {
		read.APIServer.Home = netip.MustParseAddr(given.Home)
	}
	return read
}

func decode(t *testing.T, text string) runtime.Object {
	t.Helper()
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return object
}
