// SPDX-License-Identifier: Apache-2.0

package project

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A provider accepts only metadata on a list (policy liqo-peers-objects of the chart), which its administrator can extend. We do not know the
// list: the message of a refusal names the keys that are not on it.
var (
	refusedKeys  = regexp.MustCompile(`metadata refused: labels \[([^\]]*)\], annotations \[([^\]]*)\]`)
	refusedPorts = "node ports refused"
)

// maxRefused bounds the keys of one refusal; the provider wrote the message.
const maxRefused = 64

// Refused returns what a provider does not accept of an object, as the message of its API server reports; false if the message is about something
// else, so that leaving out metadata does not help.
func Refused(message string) (refused Denied, found bool) {
	if match := refusedKeys.FindStringSubmatch(message); match != nil {
		refused.Labels, refused.Annotations = listed(match[1]), listed(match[2])
	}
	refused.NodePorts = strings.Contains(message, refusedPorts)
	return refused, len(refused.Labels) > 0 || len(refused.Annotations) > 0 || refused.NodePorts
}

// listed returns the valid keys of a list, none of which is a pattern.
func listed(text string) (keys Keys) {
	for _, key := range strings.Split(text, ", ") {
		if len(keys) < maxRefused && len(validation.IsQualifiedName(key)) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
