{{- define "cutthrough.name" -}}
{{- if contains "cutthrough" .Release.Name }}{{ .Release.Name | trunc 57 | trimSuffix "-" }}
{{- else }}{{ printf "%s-cutthrough" .Release.Name | trunc 57 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "cutthrough.selector" -}}
app.kubernetes.io/name: cutthrough
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cutthrough.labels" -}}
{{ include "cutthrough.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
