// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/apis/labels"
)

// failingHistory is Helm's storage behind an API server that restarts: lists fail until a time.
type failingHistory struct {
	*driver.Memory
	until time.Time
}

func (f *failingHistory) Query(selected map[string]string) ([]helmrelease.Releaser, error) {
	if time.Now().Before(f.until) {
		return nil, errors.New("etcdserver: request timed out")
	}
	return f.Memory.Query(selected)
}

// history lists the revisions in storage: version, state, and the revision that a rollback restored.
func (f *failingHistory) history(t *testing.T) (lines []string) {
	t.Helper()
	all, err := f.Memory.Query(map[string]string{"name": Release})
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		t.Fatal(err)
	}
	for _, one := range all {
		found, err := known(one)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d %s", found.Version, found.Info.Status)
		if of := found.Info.RollbackRevision; of != 0 {
			line += fmt.Sprintf(" of %d", of)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// TestUndo: what an undo does depends on what worked before, and its message reports what it did. Only an answer of the API server proves that nothing worked.
func TestUndo(t *testing.T) {
	const (
		restored = "the previous version and values were restored"
		removed  = "the installed objects have been removed again"
		deployed = common.StatusDeployed
		failed   = common.StatusFailed
		replaced = common.StatusSuperseded
	)
	for name, row := range map[string]struct {
		before   []common.Status // of the revisions from 1 on, before the undo
		others   []common.Status // of those that another run makes after this one began
		unread   time.Duration   // how long the API server answers no list
		failure  error
		want     []string // history after it
		messages []string
	}{
		"an upgrade": {
			before: []common.Status{deployed, failed}, failure: errors.New("no"), want: []string{"1 superseded", "2 failed", "3 deployed of 1"},
			messages: []string{"the upgrade failed: no\n", restored},
		},
		"while the API server restarts": {
			before: []common.Status{deployed, failed}, unread: 10 * time.Second, failure: errors.New("no"),
			want: []string{"1 superseded", "2 failed", "3 deployed of 1"}, messages: []string{restored},
		},
		"without an API server": {
			before: []common.Status{deployed, failed}, unread: time.Hour, failure: context.Canceled,
			want:     []string{"1 deployed", "2 failed"},
			messages: []string{"the upgrade was interrupted\n", "it was not undone", "etcdserver: request timed out", "run the command again"},
		},
		"after other failed upgrades": {
			before: []common.Status{deployed, failed, failed}, failure: errors.New("no"),
			want: []string{"1 superseded", "2 failed", "3 failed", "4 deployed of 1"}, messages: []string{restored},
		},
		"an upgrade that left no revision": {
			before: []common.Status{replaced, deployed}, failure: errors.New("no"), want: []string{"1 superseded", "2 superseded", "3 deployed of 2"},
			messages: []string{restored},
		},
		"an upgrade that ended just before its record": {
			before: []common.Status{replaced, common.StatusPendingUpgrade}, failure: errors.New("no"),
			want: []string{"1 superseded", "2 pending-upgrade", "3 deployed of 1"}, messages: []string{restored},
		},
		"an upgrade beside that of another administrator": {
			before: []common.Status{deployed}, others: []common.Status{common.StatusPendingUpgrade}, failure: errors.New("no"),
			want:     []string{"1 deployed", "2 pending-upgrade"},
			messages: []string{"the upgrade failed: no\n", "another installation of Liqo began meanwhile (revision 2, pending-upgrade)", "nothing was undone"},
		},
		"a first installation beside that of another administrator": {
			others: []common.Status{common.StatusPendingInstall}, failure: errors.New("no"),
			want:     []string{"1 pending-install"},
			messages: []string{"the installation failed: no\n", "another installation of Liqo began meanwhile (revision 1, pending-install)"},
		},
		"a first installation that was killed and repeated": {
			before: []common.Status{failed, failed}, failure: errors.New("no"), messages: []string{"the installation failed: no\n", removed},
		},
		"a first installation that was killed, and interrupted when repeated": {
			before: []common.Status{failed}, failure: context.Canceled, messages: []string{"the installation was interrupted\n", removed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				records := &failingHistory{Memory: driver.NewMemory()}
				records.SetNamespace("liqo")
				helm := action.NewConfiguration()
				helm.Releases = storage.Init(records)
				helm.KubeClient = &kubefake.PrintingKubeClient{Out: io.Discard, LogOutput: io.Discard}
				var last *release.Release
				record := func(number int, status common.Status, run string) *release.Release {
					one := &release.Release{
						Name: Release, Namespace: "liqo", Version: number, Info: &release.Info{Status: status}, Labels: map[string]string{labels.InstallRun: run},
						Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "liqo", Version: "1.0.0", AppVersion: "v1", APIVersion: "v2"}},
					}
					if err := helm.Releases.Create(one); err != nil {
						t.Fatal(err)
					}
					return one
				}
				for i, status := range row.before {
					last = record(i+1, status, "ours")
				}
				for i, status := range row.others {
					record(len(row.before)+i+1, status, "theirs")
				}
				records.until = time.Now().Add(row.unread)
				p := &Prepared{
					helm: helm, client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(),
					options: Options{Namespace: "liqo", Timeout: time.Minute}, last: last, run: "ours",
				}
				err := p.rollBack(t.Context(), &waitingClient{}, row.failure, nil, &recorder{})
				for _, message := range row.messages {
					if err == nil || !strings.Contains(err.Error(), message) {
						t.Errorf("the error is %v; want %q in it", err, message)
					}
				}
				if have := records.history(t); !slices.Equal(have, row.want) {
					t.Errorf("the history is %q, want %q", have, row.want)
				}
			})
		})
	}
}
