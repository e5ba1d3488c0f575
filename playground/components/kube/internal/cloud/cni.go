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
	// A name that no runtime reads: only .conf, .conflist and .json are.
	cniDraft = cniDirectory + "/.10-playground.draft"
)

// writeCNI puts the CNI configuration below a node's root and says whether it changed.
// The file appears at once and whole, since the runtime reads it as soon as it sees it.
// Nothing outside root is touched, whatever links a pod left there.
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
