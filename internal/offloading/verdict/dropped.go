// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// An API server drops fields of a pod that its version does not have, or has switched off, without an error. The pod then runs without.

const (
	// maxDropped bounds what is reported of a pod.
	maxDropped = 10
	// maxCompared bounds the lists whose elements are compared: a peer chooses their length.
	maxCompared = 256
)

// Dropped returns the fields that a pod was created with and does not have.
func Dropped(sent, has *corev1.PodSpec) (names []string) {
	compare(make([]string, 0, 64), reflect.ValueOf(sent).Elem(), reflect.ValueOf(has).Elem(), func(path []string) {
		if len(names) < maxDropped {
			names = append(names, strings.TrimPrefix(strings.Join(path, ""), "."))
		}
	})
	return names
}

// compare calls report with the parts of the path of each field of a value that the other one lacks. Other values, and elements that are not there,
// are what admission does, not a version.
func compare(at []string, sent, has reflect.Value, report func([]string)) {
	switch sent.Kind() {
	case reflect.Pointer:
		if !sent.IsNil() && !has.IsNil() {
			compare(at, sent.Elem(), has.Elem(), report)
		}
	case reflect.Slice:
		for i := range sent.Len() {
			if other, name := counterpart(sent, has, i); other.IsValid() {
				compare(append(at, "[", name, "]"), sent.Index(i), other, report)
			}
		}
	case reflect.Struct:
		if sent.Type().PkgPath() != reflect.TypeFor[corev1.PodSpec]().PkgPath() {
			return
		}
		for i := range sent.NumField() {
			field, inside := jsonName(sent.Type().Field(i)), at
			if field != "" {
				inside = append(at, ".", field)
			}
			switch mine, its := sent.Field(i), has.Field(i); {
			case empty(mine):
			case empty(its) && field != "":
				report(inside)
			default:
				compare(inside, mine, its, report)
			}
		}
	}
}

// counterpart returns the element of a list for one of another list: at the same place if the lists are as long, or else the one with the same name,
// if there is one only. Variables and mounts may have the name of another one.
func counterpart(sent, has reflect.Value, i int) (other reflect.Value, name string) {
	if sent.Type().Elem().Kind() != reflect.Struct || max(sent.Len(), has.Len()) > maxCompared {
		return other, ""
	}
	if name = nameOf(sent.Index(i)); sent.Len() == has.Len() && nameOf(has.Index(i)) == name {
		if name == "" {
			name = strconv.Itoa(i)
		}
		return has.Index(i), name
	}
	there, of := named(has, name)
	if _, mine := named(sent, name); name == "" || of != 1 || mine != 1 {
		return other, ""
	}
	return there, name
}

// named returns an element with a name, and how many there are.
func named(list reflect.Value, name string) (found reflect.Value, of int) {
	for i := range list.Len() {
		if nameOf(list.Index(i)) == name {
			found, of = list.Index(i), of+1
		}
	}
	return found, of
}

// nameOf is empty for what has no name.
func nameOf(element reflect.Value) string {
	if name := element.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
		return name.String()
	}
	return ""
}

// jsonName is the name of a field in JSON; empty for fields that are part of the whole.
func jsonName(of reflect.StructField) string {
	name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
	return name
}

// empty reports whether JSON leaves out a value.
func empty(value reflect.Value) bool {
	return value.IsZero() || (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0
}

// Isolating returns the fields that isolate a pod more than others and that not every version of Kubernetes has. Without them, it would have more
// rights than it asked for.
func Isolating(spec *corev1.PodSpec) []string {
	set := map[string]bool{}
	mark := func(name string, asked bool) {
		if asked {
			set[name] = true
		}
	}
	local := func(profile *corev1.AppArmorProfile) bool {
		return profile != nil && profile.Type == corev1.AppArmorProfileTypeLocalhost
	}
	mark("hostUsers", spec.HostUsers != nil && !*spec.HostUsers)
	if context := spec.SecurityContext; context != nil {
		mark("supplementalGroupsPolicy", context.SupplementalGroupsPolicy != nil && *context.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict)
		mark("appArmorProfile", local(context.AppArmorProfile))
	}
	ephemeral := make([]corev1.Container, len(spec.EphemeralContainers))
	for i := range spec.EphemeralContainers {
		ephemeral[i] = corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers, ephemeral} {
		for i := range containers {
			mark("appArmorProfile", containers[i].SecurityContext != nil && local(containers[i].SecurityContext.AppArmorProfile))
			for _, mount := range containers[i].VolumeMounts {
				mark("recursiveReadOnly", mount.RecursiveReadOnly != nil && *mount.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled)
				mark("bindMountOptions", len(mount.BindMountOptions) > 0)
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
