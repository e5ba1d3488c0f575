// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const first = `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop-rome",pod="web"} 1.5 1700000000123
container_cpu_usage_seconds_total{container="dns",namespace="kube-system",pod="dns"} 9 1700000000123
# TYPE latency histogram
latency_bucket{le="+Inf",namespace="shop-rome",pod="web"} 3
latency_count{namespace="shop-rome",pod="web"} 3
scrape_error 0
`

const second = `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{ container = "a \"b\" \\ \n c" , namespace="shop-rome",pod="api",} 2
`

// TestPage: the kept samples of two sources are grouped by family, each with one HELP and TYPE.
func TestPage(t *testing.T) {
	page, other := NewPage(1<<20), NewPage(1<<20)
	keep := func(s *Sample) bool {
		kept := s.Label("namespace") == "shop-rome"
		s.SetLabel("namespace", "shop")
		return kept
	}
	for into, text := range map[*Page]string{page: first, other: second} {
		if err := into.Read(strings.NewReader(text), keep); err != nil {
			t.Fatal(err)
		}
	}
	if err := page.Join(other); err != nil {
		t.Fatal(err)
	}
	if err := page.Add("CPU", "counter", Sample{Name: "node_cpu", Value: "3.5"}); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if _, err := page.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	want := `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1.5 1700000000123
container_cpu_usage_seconds_total{container="a \"b\" \\ \n c",namespace="shop",pod="api"} 2
# TYPE latency histogram
latency_bucket{le="+Inf",namespace="shop",pod="web"} 3
latency_count{namespace="shop",pod="web"} 3
# HELP node_cpu CPU
# TYPE node_cpu counter
node_cpu 3.5
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestHostile: a line that is no sample, and a source that is too large, are errors, whose text quotes only the start of the line.
func TestHostile(t *testing.T) {
	all := func(*Sample) bool { return true }
	for name, text := range map[string]string{
		"no value": "a{b=\"c\"}\n", "no end": "a{b=\"c\n", "no quote": "a{b=c} 1\n", "no name": "{a=\"b\"} 1\n", "three numbers": "a 1 2 3\n",
		"a page of HTML": "<html>\n", "a long line": "a{b=\"" + strings.Repeat("x", longestLine) + "\"} 1\n",
		"many labels": "a{" + strings.Repeat("b=\"c\",", maxLabels+1) + "} 1\n", "comma first": "a{,b=\"c\"} 1\n",
	} {
		if err := NewPage(1<<20).Read(strings.NewReader(text), all); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := NewPage(1000).Read(strings.NewReader(strings.Repeat("a 1\n", 1000)), all); !errors.Is(err, ErrTooMuch) {
		t.Errorf("%v, want ErrTooMuch", err)
	}
	broken := io.MultiReader(strings.NewReader("a{b=\"c"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := NewPage(1000).Read(broken, all); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that breaks off within a line: %v, want the reason why it broke off", err)
	}
	full := NewPage(50)
	if err := full.Join(NewPage(50)); err != nil {
		t.Error(err)
	}
	other := NewPage(1000)
	if err := errors.Join(other.Read(strings.NewReader(strings.Repeat("a 1\n", 50)), all)); err != nil {
		t.Fatal(err)
	}
	if err := full.Join(other); !errors.Is(err, ErrTooMuch) {
		t.Errorf("%v, want ErrTooMuch", err)
	}
}

// FuzzRead: a page that was read and written is read as the same page.
func FuzzRead(f *testing.F) {
	f.Add(first)
	f.Add(second)
	f.Fuzz(func(t *testing.T, text string) {
		all := func(*Sample) bool { return true }
		page := NewPage(1 << 20)
		if page.Read(strings.NewReader(text), all) != nil {
			return
		}
		var once, twice strings.Builder
		_, _ = page.WriteTo(&once) // a builder takes everything
		reread := NewPage(4 << 20)
		if err := reread.Read(strings.NewReader(once.String()), all); err != nil {
			t.Fatalf("%q was written, and cannot be read: %v", once.String(), err)
		}
		_, _ = reread.WriteTo(&twice)
		if once.String() != twice.String() {
			t.Errorf("%q became %q", once.String(), twice.String())
		}
	})
}
