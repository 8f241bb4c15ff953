"""The part of libnghttp2 that is used here, as of version 1.50."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "<nghttp2/nghttp2.h>" nogil:
    ctypedef struct nghttp2_session:
        pass
    ctypedef struct nghttp2_session_callbacks:
        pass
    ctypedef struct nghttp2_option:
        pass
    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags
    ctypedef struct nghttp2_headers:
        int cat
    ctypedef struct nghttp2_rst_stream:
        uint32_t error_code
    ctypedef union nghttp2_frame:
        nghttp2_frame_hd hd
        nghttp2_headers headers
        nghttp2_rst_stream rst_stream
    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen
        size_t valuelen
        uint8_t flags
    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value
    ctypedef union nghttp2_data_source:
        void *ptr
    ctypedef ssize_t (*nghttp2_data_source_read_callback)(
        nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
        uint32_t *data_flags, nghttp2_data_source *source, void *user_data) noexcept nogil
    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_data_source_read_callback read_callback

    enum:
        NGHTTP2_DATA
        NGHTTP2_HEADERS
        NGHTTP2_PRIORITY
        NGHTTP2_RST_STREAM
        NGHTTP2_SETTINGS
        NGHTTP2_GOAWAY
        NGHTTP2_WINDOW_UPDATE
        NGHTTP2_HCAT_REQUEST
        NGHTTP2_FLAG_NONE
        NGHTTP2_FLAG_END_STREAM
        NGHTTP2_NV_FLAG_NONE
        NGHTTP2_NV_FLAG_NO_INDEX
        NGHTTP2_DATA_FLAG_EOF
        NGHTTP2_DATA_FLAG_NO_END_STREAM
        NGHTTP2_DATA_FLAG_NO_COPY
        NGHTTP2_NO_ERROR
        NGHTTP2_PROTOCOL_ERROR
        NGHTTP2_INTERNAL_ERROR
        NGHTTP2_FLOW_CONTROL_ERROR
        NGHTTP2_STREAM_CLOSED
        NGHTTP2_FRAME_SIZE_ERROR
        NGHTTP2_REFUSED_STREAM
        NGHTTP2_CANCEL
        NGHTTP2_CONNECT_ERROR
        NGHTTP2_ENHANCE_YOUR_CALM
        NGHTTP2_SETTINGS_ENABLE_PUSH
        NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
        NGHTTP2_INITIAL_WINDOW_SIZE
        NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
        NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES
        NGHTTP2_ERR_DEFERRED
        NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
        NGHTTP2_ERR_FLOODED
        NGHTTP2_ERR_NOMEM

    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **out)
    void nghttp2_session_callbacks_set_on_begin_frame_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame_hd *hd,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_begin_headers_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_header_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                 size_t namelen, const uint8_t *value, size_t valuelen, uint8_t flags,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_invalid_header_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                 size_t namelen, const uint8_t *value, size_t valuelen, uint8_t flags,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_frame_recv_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame, int lib_error_code,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_frame_send_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_frame_not_send_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, const nghttp2_frame *frame, int lib_error_code,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                 const uint8_t *data, size_t length, void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_on_stream_close_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                 void *user_data) noexcept nogil)
    void nghttp2_session_callbacks_set_send_data_callback(
        nghttp2_session_callbacks *callbacks,
        int (*f)(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                 size_t length, nghttp2_data_source *source, void *user_data) noexcept nogil)

    int nghttp2_option_new(nghttp2_option **out)
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *option, int val)
    void nghttp2_option_set_no_closed_streams(nghttp2_option *option, int val)
    void nghttp2_option_set_max_outbound_ack(nghttp2_option *option, size_t val)
    void nghttp2_option_set_no_http_messaging(nghttp2_option *option, int val)
    void nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(
        nghttp2_option *option, int val)
    void nghttp2_option_set_max_send_header_block_length(nghttp2_option *option, size_t val)

    int nghttp2_session_server_new2(
        nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
        const nghttp2_option *option)
    int nghttp2_session_client_new2(
        nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *user_data,
        const nghttp2_option *option)
    void nghttp2_session_del(nghttp2_session *session)
    ssize_t nghttp2_session_mem_recv(
        nghttp2_session *session, const uint8_t *data, size_t n)
    ssize_t nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data)
    int nghttp2_session_want_read(nghttp2_session *session)
    uint32_t nghttp2_session_get_remote_settings(
        nghttp2_session *session, int id)
    int nghttp2_session_check_request_allowed(nghttp2_session *session)
    int nghttp2_session_resume_data(nghttp2_session *session, int32_t stream_id)
    void *nghttp2_session_get_stream_user_data(nghttp2_session *session, int32_t stream_id)
    int nghttp2_session_set_stream_user_data(
        nghttp2_session *session, int32_t stream_id, void *data)
    int32_t nghttp2_session_get_remote_window_size(nghttp2_session *session)
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *session)
    int nghttp2_session_set_local_window_size(
        nghttp2_session *session, uint8_t flags, int32_t stream_id, int32_t window_size)
    int nghttp2_session_consume_connection(nghttp2_session *session, size_t n)
    int nghttp2_session_consume_stream(nghttp2_session *session, int32_t stream_id, size_t n)
    int nghttp2_session_terminate_session(nghttp2_session *session, uint32_t error_code)
    int nghttp2_submit_settings(
        nghttp2_session *session, uint8_t flags, const nghttp2_settings_entry *iv, size_t niv)
    int32_t nghttp2_submit_request(
        nghttp2_session *session, const void *pri_spec, const nghttp2_nv *nva, size_t nvlen,
        const nghttp2_data_provider *data_prd, void *stream_user_data)
    int nghttp2_submit_response(
        nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen,
        const nghttp2_data_provider *data_prd)
    int32_t nghttp2_submit_headers(
        nghttp2_session *session, uint8_t flags, int32_t stream_id, const void *pri_spec,
        const nghttp2_nv *nva, size_t nvlen, void *stream_user_data)
    int nghttp2_submit_trailer(
        nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen)
    int nghttp2_submit_rst_stream(
        nghttp2_session *session, uint8_t flags, int32_t stream_id, uint32_t error_code)
    int nghttp2_submit_shutdown_notice(nghttp2_session *session)
    int nghttp2_submit_goaway(
        nghttp2_session *session, uint8_t flags, int32_t last_stream_id, uint32_t error_code,
        const uint8_t *opaque_data, size_t opaque_data_len)

# Since version 1.61, and in Debian's 1.52 for CVE-2024-28182. A library without it has no such bound.
cdef extern from *:
    """
    #include <nghttp2/nghttp2.h>
    void nghttp2_option_set_max_continuations(nghttp2_option *option, size_t val);
    #pragma weak nghttp2_option_set_max_continuations
    static inline void permit_continuations(nghttp2_option *option, size_t n) {
        if (nghttp2_option_set_max_continuations)
            nghttp2_option_set_max_continuations(option, n);
    }
    """
    void permit_continuations(nghttp2_option *option, size_t n) nogil
