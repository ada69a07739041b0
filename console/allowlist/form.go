package allowlist

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// listForm is the form of the allowlist.
type listForm struct {
	edit.Form

	Allowlist string // one entry a line
	// Added is the block that the form adds to the allowlist; empty: none.
	Added string
	// ShutOut is the viewer's own address, if the new allowlist refuses it and that was not confirmed.
	ShutOut string
}

func (h *Handler) renderForm(w http.ResponseWriter, r *web.Request, status int, form listForm) error {
	return h.Pages.Render(w, r.Request, status, "allowlist", r.View(form))
}

// ShowForm shows the form of the allowlist.
func (h *Handler) ShowForm(w http.ResponseWriter, r *web.Request) error {
	var lines []string
	for _, entry := range r.Merchant.Spec.IPAllowlist {
		lines = append(lines, string(entry))
	}
	form := listForm{Form: edit.NewForm(r)}
	if added := r.URL.Query().Get("add"); refused(r.Merchant, added) && !slices.Contains(lines, added) {
		lines, form.Added = append(lines, added), added
	}
	form.Allowlist = strings.Join(lines, "\n")
	return h.renderForm(w, r, http.StatusOK, form)
}

// refused reports whether the status has the block: a link from elsewhere adds nothing else to the form.
func refused(merchant *v1alpha1.Merchant, block string) bool {
	return merchant.Status.Allowlist != nil &&
		slices.ContainsFunc(merchant.Status.Allowlist.Refused, func(r v1alpha1.RefusedBlock) bool { return r.Block == block && r.KeyID == "" })
}

// Edit changes the allowlist.
func (h *Handler) Edit(w http.ResponseWriter, r *web.Request) error {
	form := listForm{Form: edit.NewForm(r)}
	form.Allowlist = r.PostFormValue("allowlist")
	var entries []v1alpha1.IPBlock
	for entry := range strings.FieldsSeq(strings.ReplaceAll(form.Allowlist, ",", " ")) {
		if block := v1alpha1.IPBlock(entry); !slices.Contains(entries, block) {
			entries = append(entries, block)
		}
	}
	if problem := wrongEntry(h.Pages.Words(r.Context()), entries); problem != "" {
		form.Error = problem
		return h.renderForm(w, r, http.StatusUnprocessableEntity, form)
	}
	enforced := r.Merchant.Spec.IPAllowlistMode != v1alpha1.IPAllowlistReport
	if own := h.shutsOut(r.Request, entries); own != "" && enforced && r.PostFormValue("confirmed") == "" {
		form.ShutOut = own
		return h.renderForm(w, r, http.StatusUnprocessableEntity, form)
	}
	done, err := h.Editor.Change(r.Context(), r, &form.Form, audit.ActionEditAllowlist, func(changed *v1alpha1.Merchant) {
		changed.Spec.IPAllowlist = entries
	})
	switch {
	case err != nil:
		return err
	case !done:
		return h.renderForm(w, r, http.StatusUnprocessableEntity, form)
	}
	return r.LeadTo(w, "#allowlist")
}

// wrongEntry says what to write instead of the first wrong entry. The API server refuses the same, in the words of kubectl.
func wrongEntry(words web.Words, entries []v1alpha1.IPBlock) string {
	for _, entry := range entries {
		text := string(entry)
		block, err := netip.ParsePrefix(text)
		_, addressErr := netip.ParseAddr(text)
		switch {
		case err == nil && block != block.Masked():
			return words.Text("allowlist.error.bits", text, block.Masked())
		case err != nil && addressErr != nil:
			return words.Text("allowlist.error.form", text)
		}
	}
	return ""
}

// shutsOut returns the viewer's own address if it is not on a list; else, or if one of them cannot be read, nothing.
func (h *Handler) shutsOut(r *http.Request, entries []v1alpha1.IPBlock) string {
	list, err := allowlist.Parse(entries)
	if err != nil {
		return "" // the API server says which entry is wrong
	}
	own, err := h.Clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil || list.Allows(own) {
		return ""
	}
	return own.String()
}
