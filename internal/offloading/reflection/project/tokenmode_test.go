// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestWhoReadsTokens: a container that reads its token at home reads it at the provider, whatever the mode of the volume. There, the file is one of a Secret.
func TestWhoReadsTokens(t *testing.T) {
	const user, group = 1000, 2000
	// may reports whether a user reads a file, as the kernel decides.
	may := func(mode int32, owner, files, runs int64, groups ...int64) bool {
		if runs == 0 {
			return true
		}
		if owner == runs {
			return mode&0o400 != 0
		}
		for _, one := range groups {
			if one == files {
				return mode&0o040 != 0
			}
		}
		return mode&0o004 != 0
	}
	for name, test := range map[string]struct {
		security, container string
		away                bool
	}{
		"the usual mode":                    {`{runAsUser: 1000}`, `{}`, true},
		"one user":                          {`{runAsUser: 1000}`, `{}`, true},
		"one user, stated by the container": {`{}`, `{runAsUser: 1000}`, true},
		"one user, and root by default":     {`{runAsUser: 0}`, `{runAsUser: 1000}`, true},
		"a group for files":                 {`{runAsUser: 1000, fsGroup: 2000}`, `{}`, true},
		"a group for files, and two users":  {`{fsGroup: 2000}`, `{runAsUser: 1000}`, true},
		"no user":                           {`{}`, `{}`, false}, // neither at home: the image's user is not known, and the file is root's
	} {
		for _, mode := range []string{"420", "256", "288", "384", "0"} {
			local := identity(t, `{securityContext: `+test.security+`, containers: [{name: main, securityContext: `+test.container+`}],
				volumes: [{name: tokens, projected: {defaultMode: `+mode+`, sources: [{serviceAccountToken: {path: vault, audience: vault}}, {secret: {name: other}}]}}]}`)
			if test.security == `{fsGroup: 2000}` {
				local.Spec.Containers = append(local.Spec.Containers, read[corev1.Container](t, `{name: other, securityContext: {runAsUser: 7}}`))
			}
			grouped := local.Spec.SecurityContext.FSGroup != nil
			volume := sent(t, local, joined()).Spec.Volumes[0].Projected
			if volume.Sources[1].Secret.Items != nil || *volume.DefaultMode != *local.Spec.Volumes[0].Projected.DefaultMode {
				t.Errorf("%s, mode %s: another source has changed", name, mode)
			}
			is, owner := *volume.DefaultMode, int64(0)
			if own := volume.Sources[0].Secret.Items[0].Mode; own != nil {
				is = *own
			}
			var groups []int64
			files := int64(0)
			if grouped {
				groups, files, is = []int64{group}, group, is|0o440 // what a kubelet does to all files of the volume
			}
			want := test.away || *volume.DefaultMode&0o004 != 0
			if got := may(is, owner, files, user, groups...); got != want {
				t.Errorf("%s, mode %s: the file has mode %#o, and user %d reads it: %t, want %t", name, mode, is, user, got, want)
			}
		}
	}
	for name, spec := range map[string]string{
		"two users":                        `{containers: [{name: a, securityContext: {runAsUser: 1}}, {name: b, securityContext: {runAsUser: 2}}], `,
		"an init container without a user": `{initContainers: [{name: i}], containers: [{name: a, securityContext: {runAsUser: 1}}], `,
	} {
		local := identity(t, spec+`volumes: [{name: tokens, projected: {defaultMode: 256, sources: [{serviceAccountToken: {path: token}}]}}]}`)
		if mode := sent(t, local, joined()).Spec.Volumes[0].Projected.Sources[0].Secret.Items[0].Mode; mode != nil {
			t.Errorf("%s: mode %#o; at home the file is root's with that of the volume", name, *mode)
		}
	}
}
