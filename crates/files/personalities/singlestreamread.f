# Reads one file from the beginning to the end.
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=1g
define file name=largefile1,path=$dir,size=$filesize,prealloc,reuse,paralloc
define process name=streams1,instances=1 {
  thread name=stream1,memsize=10m,instances=$nthreads {
    flowop read name=seqread1,filesetname=largefile1,iosize=$iosize
  }
}
run 60
