// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"fmt"
	"os"
)

const (
	cniDirectory = "etc/cni/net.d"
	cniFile      = cniDirectory + "/10-playground.conflist"
	// No runtime reads this name: runtimes read only .conf, .conflist and .json.
	cniDraft = cniDirectory + "/.10-playground.draft"
)

// writeCNI writes the CNI configuration below a node's root and reports whether it changed.
// A rename makes the file appear complete, since the runtime reads it as soon as it exists.
// Links that a pod left there cannot lead the write out of root.
func writeCNI(rootPath string, content []byte) (changed bool, err error) {
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return false, err
	}
	defer root.Close()
	if have, err := root.ReadFile(cniFile); err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err := root.MkdirAll(cniDirectory, 0o755); err != nil {
		return false, fmt.Errorf("below %s: %w", rootPath, err)
	}
	if err := root.WriteFile(cniDraft, content, 0o644); err != nil {
		return false, fmt.Errorf("below %s: %w", rootPath, err)
	}
	if err := root.Rename(cniDraft, cniFile); err != nil {
		return false, fmt.Errorf("below %s: %w", rootPath, err)
	}
	return true, nil
}
