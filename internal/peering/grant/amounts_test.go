// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"math"
	"math/big"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// list makes a resource list from pairs of name and quantity.
func list(pairs ...string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		made[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return made
}

func TestShare(t *testing.T) {
	for _, test := range []struct {
		name       string
		percentage int
		free, want corev1.ResourceList
	}{
		{"documented: 100 free", 90, list("cpu", "100"), list("cpu", "90")},
		{"documented: 50 of 100 used", 90, list("cpu", "50"), list("cpu", "45")},
		{"documented: grown to 200", 90, list("cpu", "200"), list("cpu", "180")},
		{"cpu in thousandths, down", 90, list("cpu", "1001m"), list("cpu", "900m")},
		{"memory in megabytes, down", 90, list("memory", "16Gi"), list("memory", "15461M")},
		{"local storage in bytes, down", 50, list("ephemeral-storage", "1001"), list("ephemeral-storage", "500")},
		{"one device stays one", 90, list("nvidia.com/gpu", "1"), list("nvidia.com/gpu", "1")},
		{"one device at one percent", 1, list("nvidia.com/gpu", "1"), list("nvidia.com/gpu", "1")},
		{"two devices at 90%", 90, list("nvidia.com/gpu", "2"), list("nvidia.com/gpu", "2")},
		{"eight devices at 50%", 50, list("nvidia.com/gpu", "8"), list("nvidia.com/gpu", "4")},
		{"three devices at 50%", 50, list("nvidia.com/gpu", "3"), list("nvidia.com/gpu", "2")},
		{"three devices at 40%", 40, list("nvidia.com/gpu", "3"), list("nvidia.com/gpu", "1")},
		{"no device left", 90, list("nvidia.com/gpu", "0"), list("nvidia.com/gpu", "0")},
		{"pods", 90, list("pods", "110"), list("pods", "99")},
		{"huge pages in pages", 90, list("hugepages-2Mi", "512Mi"), list("hugepages-2Mi", "460Mi")},
		{"one huge page stays", 10, list("hugepages-1Gi", "1Gi"), list("hugepages-1Gi", "1Gi")},
		{"volumes of a node are not shared", 90, list("attachable-volumes-aws-ebs", "39", "cpu", "1"), list("cpu", "900m")},
		{"nothing at 0%", 0, list("cpu", "100", "nvidia.com/gpu", "4", "pods", "110"), list("cpu", "0", "nvidia.com/gpu", "0", "pods", "0")},
		{"all at 100%", 100, list("cpu", "3", "nvidia.com/gpu", "4"), list("cpu", "3", "nvidia.com/gpu", "4")},
		{"more than all is all", 900, list("cpu", "3"), list("cpu", "3")},
		{"less than nothing is nothing", -5, list("cpu", "3"), list("cpu", "0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Share(Count(test.free), test.percentage); !Equal(got, test.want) {
				t.Errorf("got %v, want %v", text(got), text(test.want))
			}
		})
	}
}

// text shows quantities as people read them.
func text(all corev1.ResourceList) map[corev1.ResourceName]string {
	shown := map[corev1.ResourceName]string{}
	for name, quantity := range all {
		shown[name] = quantity.String()
	}
	return shown
}

func TestCountSurvivesAnyQuantity(t *testing.T) {
	for quantity, want := range map[string]int64{
		"-1": 0, "0": 0, "1n": 1, "1500m": 2, "9223372036854775807": math.MaxInt64, "10E": math.MaxInt64, "1e300": math.MaxInt64,
		"-1e300": 0, "0.0000000000000000001": 1,
	} {
		parsed, err := resource.ParseQuantity(quantity)
		if err != nil {
			t.Errorf("%s: %v", quantity, err)
			continue
		}
		if got := amount(gpu, parsed); got != want {
			t.Errorf("%s counts as %d, want %d", quantity, got, want)
		}
	}
	if got := amount(corev1.ResourceCPU, resource.MustParse("10P")); got != math.MaxInt64 {
		t.Errorf("10P cpu are %d thousandths, want the largest number", got)
	}
}

func TestDivide(t *testing.T) {
	total := list("cpu", "10", "memory", "8G", "nvidia.com/gpu", "1")
	for _, test := range []struct {
		name         string
		bounds, want []corev1.ResourceList
	}{
		{"nothing named: all", []corev1.ResourceList{nil}, []corev1.ResourceList{total}},
		{"bounded", []corev1.ResourceList{list("cpu", "4")}, []corev1.ResourceList{list("cpu", "4", "memory", "8G", "nvidia.com/gpu", "1")}},
		{"more than there is", []corev1.ResourceList{list("cpu", "400")}, []corev1.ResourceList{total}},
		{"less than nothing", []corev1.ResourceList{list("cpu", "-4")}, []corev1.ResourceList{list("cpu", "0", "memory", "8G", "nvidia.com/gpu", "1")}},
		{"what no node has", []corev1.ResourceList{list("moon/dust", "4")}, []corev1.ResourceList{total}},
		{
			"the second gets the rest",
			[]corev1.ResourceList{list("cpu", "4", "memory", "2G", "nvidia.com/gpu", "0"), nil},
			[]corev1.ResourceList{list("cpu", "4", "memory", "2G", "nvidia.com/gpu", "0"), list("cpu", "6", "memory", "6G", "nvidia.com/gpu", "1")},
		},
		{
			"asking twice does not bring twice",
			[]corev1.ResourceList{nil, nil},
			[]corev1.ResourceList{total, list("cpu", "0", "memory", "0", "nvidia.com/gpu", "0")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Divide(total, test.bounds)
			for i := range test.want {
				if !Equal(got[i], test.want[i]) {
					t.Errorf("slice %d: got %v, want %v", i, text(got[i]), text(test.want[i]))
				}
			}
		})
	}
}

func TestDiffers(t *testing.T) {
	for _, test := range []struct {
		name        string
		before, now corev1.ResourceList
		threshold   int
		want        bool
	}{
		{"same", list("cpu", "100"), list("cpu", "100"), 5, false},
		{"same in other words", list("cpu", "1"), list("cpu", "1000m"), 0, false},
		{"at the threshold", list("cpu", "100"), list("cpu", "105"), 5, false},
		{"above", list("cpu", "100"), list("cpu", "105001m"), 5, true},
		{"below, downwards", list("cpu", "100"), list("cpu", "96"), 5, false},
		{"above, downwards", list("cpu", "100"), list("cpu", "94"), 5, true},
		{"one of many", list("cpu", "100", "memory", "10G"), list("cpu", "100", "memory", "9G"), 5, true},
		{"appears", list("cpu", "100"), list("cpu", "100", "nvidia.com/gpu", "1"), 5, true},
		{"vanishes", list("cpu", "100", "nvidia.com/gpu", "1"), list("cpu", "100"), 5, true},
		{"one for another", list("cpu", "1"), list("memory", "1"), 5, true},
		{"runs out", list("cpu", "100"), list("cpu", "0"), 100, true},
		{"comes back", list("cpu", "0"), list("cpu", "1m"), 100, true},
		{"anything at threshold zero", list("cpu", "100"), list("cpu", "100001m"), 0, true},
		{"huge", list("memory", "8E"), list("memory", "1"), 5, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Differs(test.before, test.now, test.threshold); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestParsePercentage(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "90": 90, " 90\n": 90, "90%": 90, "90 %": 90, "100": 100, "": -1, "%": -1, "-1": -1, "101": -1, "9.5": -1, "0x10": -1,
		"ninety": -1,
	} {
		got, err := ParsePercentage(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
}

// FuzzShare: no share is negative, more than there is, or more than two grains away from the exact number (one is lost
// if what is free is no whole number of pieces, one by rounding); no piece vanishes; and a larger percentage or more free resources never give less.
func FuzzShare(f *testing.F) {
	for _, seed := range []struct {
		value      int64
		percentage uint8
	}{{0, 90}, {1, 1}, {1, 90}, {100_000, 90}, {50_000, 90}, {200_000, 90}, {math.MaxInt64, 100}, {math.MaxInt64 - 1, 99}, {1<<53 + 1, 33}, {999_999, 100}} {
		f.Add(seed.value, seed.percentage, "nvidia.com/gpu")
		f.Add(seed.value, seed.percentage, "cpu")
		f.Add(seed.value, seed.percentage, "memory")
		f.Add(seed.value, seed.percentage, "hugepages-2Mi")
		f.Add(seed.value, seed.percentage, "hugepages-")
		f.Add(seed.value, seed.percentage, "hugepages-1e300")
	}
	f.Fuzz(func(t *testing.T, value int64, percentage uint8, text string) {
		name, percent := corev1.ResourceName(text), int(percentage)%(MaxPercentage+1)
		share := func(value int64, percent int) int64 {
			list := Share(Amounts{name: value}, percent)
			if !Shared(name) {
				if len(list) != 0 {
					t.Fatalf("%s is shared", name)
				}
				return 0
			}
			quantity := list[name]
			if name == corev1.ResourceCPU {
				return quantity.MilliValue()
			}
			return quantity.Value()
		}
		got := share(value, percent)
		if got < 0 || got > max(value, 0) {
			t.Fatalf("%d%% of %d %s is %d", percent, value, name, got)
		}
		if !Shared(name) || value < 0 {
			return
		}
		step, pieces := granularity(name)
		if pieces && value >= step && percent > 0 && got < step {
			t.Errorf("%d%% of %d %s vanished", percent, value, name)
		}
		exact := new(big.Int).Mul(big.NewInt(value), big.NewInt(int64(percent)))
		exact.Quo(exact, big.NewInt(100))
		if off := new(big.Int).Sub(exact, big.NewInt(got)); off.CmpAbs(new(big.Int).Mul(big.NewInt(2), big.NewInt(step))) > 0 {
			t.Errorf("%d%% of %d %s is %d, off by %s, more than two grains (%d)", percent, value, name, got, off, step)
		}
		if percent < MaxPercentage && share(value, percent+1) < got {
			t.Errorf("%d%% of %d %s is more than %d%%", percent, value, name, percent+1)
		}
		if value < math.MaxInt64 && share(value+1, percent) < got {
			t.Errorf("%d%% of %d %s is more than of one more", percent, value, name)
		}
	})
}

// FuzzDivide: the parts of several slices never sum up to more than the whole, and nothing is lost when the last
// one takes all.
func FuzzDivide(f *testing.F) {
	f.Add(int64(10_000), int64(4_000), int64(9_000), "4", "-1")
	f.Add(int64(math.MaxInt64), int64(0), int64(math.MaxInt64), "1e300", "0.5")
	f.Fuzz(func(t *testing.T, cpu, memory, devices int64, first, second string) {
		total := corev1.ResourceList{
			corev1.ResourceCPU: quantity(corev1.ResourceCPU, max(cpu, 0)), corev1.ResourceMemory: quantity(corev1.ResourceMemory, max(memory, 0)),
			gpu: quantity(gpu, max(devices, 0)),
		}
		var bounds []corev1.ResourceList
		for _, text := range []string{first, second} {
			if bound, err := resource.ParseQuantity(text); err == nil {
				bounds = append(bounds, corev1.ResourceList{corev1.ResourceCPU: bound, gpu: bound})
			}
		}
		bounds = append(bounds, nil)
		sum := corev1.ResourceList{}
		for _, part := range Divide(total, bounds) {
			for name, value := range part {
				if value.Sign() < 0 {
					t.Fatalf("negative part: %s of %s", value.String(), name)
				}
				before := sum[name]
				before.Add(value)
				sum[name] = before
			}
		}
		if !Equal(sum, total) {
			t.Errorf("parts sum up to %v, total is %v", text(sum), text(total))
		}
	})
}
