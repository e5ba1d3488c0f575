// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"testing"

	"liqo.io/liqo/internal/action/install/clusters"
)

func TestKind(t *testing.T) {
	check(t, "kind",
		recorded{objects: "kind", host: "https://127.0.0.1:41873", want: "10.200.0.0/16 10.80.0.0/12 - NodePort kind insecure"},
		recorded{
			objects: "kind", host: "https://127.0.0.1:41873", overrides: clusters.Overrides{ServiceType: "LoadBalancer"},
			want: "10.200.0.0/16 10.80.0.0/12 - LoadBalancer kind insecure",
		},
	)
}
